"""Makes a rank's ring and writes what does not happen at every op.

A full shared memory must not end the job: blocks are reserved before they are touched
(writing into a sparse file on a full tmpfs is SIGBUS), with a smaller ring and a second
folder to fall back to.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import mmap
import os
import struct
import threading
import time
from pathlib import Path
from typing import Any, Final

from frtop_probe.ring import layout
from frtop_probe.ring.layout import Cell, Event, Shape, Side
from frtop_probe.ring.space import Space

KEPT: Final = frozenset({Side.SIGNATURE, Side.SITE})
"""Kinds that must leave the end of the side table to the others."""
_TID: Final = struct.Struct("=I")
_TID_OFFSET: Final = struct.calcsize("=8s2I2Q16s2qI")


class NoRoom(Exception):
    """No folder takes even a small ring; the text says which, why, and what to do."""


class Writer:
    """One mapped ring. The hook packs slots and rows itself; the rest goes through here."""

    def __init__(self, path: Path, descriptor: int, shape: Shape) -> None:
        self.path = path
        self.shape = shape
        self.map = mmap.mmap(descriptor, shape.size)
        self.words = memoryview(self.map).cast("q")
        self.cells = self.words[layout.CELLS_OFFSET // 8 : layout.GROUPS_OFFSET // 8]
        self.next_sequence = itertools.count(1).__next__
        # Closing any descriptor of the file would drop the lock that says "alive".
        self._descriptor = descriptor
        self._used = 0
        self._busy = False
        self._lock = threading.RLock()
        self._notes = itertools.count(1)

    def open_for_readers(self) -> None:
        """Writes the identity, its magic last: before that the file is no ring."""
        shape, space = self.shape, Space.here()
        values = (
            layout.VERSION,
            shape.size,
            start_ticks(),
            space.pid_namespace,
            space.boot,
            time.monotonic_ns(),
            time.time_ns(),
            os.getpid(),
            0,
            threading.main_thread().ident or 0,
            0,
            0,
            0,
            shape.groups,
            shape.sites,
            shape.leftovers,
            shape.slots,
            shape.side,
            0,
        )
        layout.IDENTITY.pack_into(self.map, 0, b"", *values)
        self.cells[Cell.RANK] = -1
        self.cells[Cell.OLDEST] = 1
        self.cells[Cell.FETCH_WORKER] = -1
        self.map[0 : len(layout.MAGIC)] = layout.MAGIC

    def name_thread(self, native_id: int) -> None:
        _TID.pack_into(self.map, _TID_OFFSET, native_id)

    def enter(self, kind: Side, number: int, payload: Any) -> bool:
        """Appends to the side table; False when it is full, or busy in this very thread.

        The latter happens when a signal handler or a finalizer issues an op while the
        thread is in here: an unknown signature is better than a torn entry.
        """
        text = json.dumps(payload, separators=(",", ":"), default=str).encode(errors="replace")
        padding = -len(text) % 8
        entry = layout.SIDE_ENTRY.pack(len(text), kind, padding, number) + text + bytes(padding)
        with self._lock:
            if self._busy:
                return False
            self._busy = True
            try:
                limit = self.shape.side - (layout.SIDE_RESERVED if kind in KEPT else 0)
                end = self._used + len(entry)
                if end > limit:
                    return False
                at = self.shape.side_offset
                self.map[at + self._used : at + end] = entry
                self._used = end
                self.cells[Cell.SIDE_USED] = end
            finally:
                self._busy = False
        return True

    def mark(self, event: Event, number: int, group: int = layout.NO_GROUP) -> None:
        """A slot for something that is complete as it happens: a step, a note."""
        now = time.monotonic_ns()
        sequence = self.next_sequence()
        layout.SLOT.pack_into(
            self.map,
            self.shape.slots_offset + sequence % self.shape.slots * layout.SLOT_SIZE,
            *(sequence, now, now, number, threading.get_ident(), group, 0, 0, 0),
            *(0, 0, event, 0, sequence),
        )
        self.reach(sequence)

    def reach(self, sequence: int) -> None:
        """Moves the head on, never back: threads may come here out of order."""
        if sequence > self.cells[Cell.HEAD]:  # noqa: PLR1730 - a call may switch threads
            self.cells[Cell.HEAD] = sequence

    def note(self, text: str) -> None:
        number = next(self._notes)
        if self.enter(Side.NOTE, number, text[:2000]):
            self.mark(Event.NOTE, number)


def create(folders: list[Path]) -> Writer:
    """A ring in the first of `folders` that has room; large if it can be, else small.

    Raises:
        NoRoom: none has.
    """
    reasons = []
    # Containers that start together have the same pids, in the same hundredth of a second.
    name = f"{os.getpid()}-{start_ticks()}-{Space.here().pid_namespace}{layout.SUFFIX}"
    for folder in folders:
        path = folder / name
        for shape in (layout.FULL, layout.SMALL):
            try:
                return _create(path, shape)
            except OSError as error:
                reasons.append(f"{folder}: {error.strerror}")
    advice = "set FRTOP_DIR to another folder on this host"
    raise NoRoom("; ".join(dict.fromkeys([*reasons, advice])))


def _create(path: Path, shape: Shape) -> Writer:
    # A program that replaced itself (exec) has its old pid and start time, so its old ring
    # may be here. Shrinking a file that the agent has mapped would kill the agent.
    path.unlink(missing_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, shape.size)
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
        writer = Writer(path, descriptor, shape)
        writer.open_for_readers()
    except BaseException:
        os.close(descriptor)
        path.unlink(missing_ok=True)
        raise
    return writer


def start_ticks() -> int:
    """When this process started, in clock ticks since boot: with the pid, its name."""
    stat = Path("/proc/self/stat").read_bytes()
    return int(stat[stat.rindex(b")") + 2 :].split()[19])
