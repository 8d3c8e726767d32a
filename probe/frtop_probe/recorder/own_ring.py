"""The ring of this process: its file, and everything in it except ops.

The kernels write ops: `ops/kernel.py` in Python, `native/kernel.cpp` in C++. `write_slot` here
serves calls that are no ops, such as `new_group`.

A full shared memory must not end the job. Writing into a sparse file on a full tmpfs raises
SIGBUS, so all blocks are reserved first; without enough room, a smaller ring is created, or one
in a second folder.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import mmap
import os
import struct
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from frtop_probe.proc import pid_stat
from frtop_probe.recorder.descriptors import OwnedDescriptor
from frtop_probe.recorder.marks.marks import MarkWriter
from frtop_probe.ring import layout
from frtop_probe.ring.layout import MarkKind, Shape, Side, StatusCell
from frtop_probe.ring.pid_namespace import PidNamespace
from frtop_probe.ring.places import Places

LONGER_RING: Final = "FRTOP_LONGER_RING"
"""`1`: the history is as long as possible from the start."""
AHEAD: Final = 8192
"""A longer history begins this many ops after the newest one. Other threads issue fewer while the
recorder's thread writes that down: at 15 us each, this many would take 0.1 s."""
NEVER: Final = sys.maxsize
_MADV_POPULATE_WRITE: Final = 23
DESTROYED: Final = b',"destroyed":true'
"""In the text of a destroyed group: a name has no quotation mark without a backslash."""
LIMITED: Final = frozenset({Side.FORM, Side.SITE, Side.MODULE})
"""Kinds that may not use the reserved end of the side table."""
_Key = tuple[int, int]
"""Kind and number of an entry."""
_TID: Final = struct.Struct("=I")
_TID_OFFSET: Final = struct.calcsize("=8s2I2Q16s2qI")


class NoRingSpace(Exception):
    """No folder has room for even a small ring; the text says which, why, and what to do."""


class OwnRing:
    """The mapped file. The hook itself writes slots and rows of ops."""

    def __init__(self, path: Path, descriptor: int, shape: Shape) -> None:
        self.path = path
        self.shape = shape
        self.map = mmap.mmap(descriptor, shape.longest)
        self.words = memoryview(self.map).cast("q")
        self.cells = self.words[layout.CELLS_OFFSET // 8 : layout.GROUPS_OFFSET // 8]
        self.next_sequence = itertools.count(1).__next__
        self.longer_from = [NEVER]
        """Its item is the first event in the additional slots."""
        # Closing any descriptor of the file would drop the lock that shows that we are alive.
        self._file = OwnedDescriptor(descriptor)
        self._used = 0
        self._full = shape.side * 3 // 4
        """Bytes of the side table, from which on it is written anew."""
        self._busy = False
        self._lock = threading.RLock()
        self._notes = itertools.count(1)
        self.marks = MarkWriter(self.map, self.words, shape)

    def write_header(self) -> None:
        """Writes the header, with the magic last, so that readers refuse an incomplete ring."""
        shape, namespace = self.shape, PidNamespace.here()
        values = (
            layout.VERSION,
            shape.longest,
            start_ticks(),
            namespace.inode,
            namespace.boot,
            time.monotonic_ns(),
            time.time_ns(),
            os.getpid(),
            0,
            threading.main_thread().ident or 0,
            0,
            0,
            0,
            *shape,
        )
        layout.HEADER.pack_into(self.map, 0, b"", *values)
        self.cells[StatusCell.RANK] = -1
        self.cells[StatusCell.OLDEST] = 1
        self.cells[StatusCell.FETCH_WORKER] = -1
        self.map[0 : len(layout.MAGIC)] = layout.MAGIC

    def set_recorder_tid(self, native_id: int) -> None:
        _TID.pack_into(self.map, _TID_OFFSET, native_id)

    def write_entry(self, kind: Side, number: int, payload: Any) -> bool:
        """Appends to the side table; returns False if it is full or busy in this thread.

        It is busy if a signal handler or a finalizer issues an op while the thread is in this
        function. An unknown form is better than a torn entry.
        """
        text = json.dumps(payload, separators=(",", ":"), default=str).encode(errors="replace")
        with self._lock:
            if self._busy:
                return False
            self._busy = True
            try:
                entry = _entry(kind, number, text, self.cells[StatusCell.SIDE_VERSION])
                limit = self.shape.side - (layout.SIDE_RESERVED if kind in LIMITED else 0)
                end = self._used + len(entry)
                if end > limit:
                    return False
                at = self.shape.side_offset
                self.map[at + self._used : at + end] = entry
                self._used = end
                self.cells[StatusCell.SIDE_USED] = end
            finally:
                self._busy = False
        return True

    def drop_old_entries(self) -> None:
        """Writes the side table anew with what is still needed of it, once it is mostly full.

        Only the recorder's thread may call it. Others wait for a copy of some 100 KB, no longer.
        """
        if self._used < self._full:
            return
        at, cells, read = self.shape.side_offset, self.cells, self._used
        version = cells[StatusCell.SIDE_VERSION] + 1
        newest: dict[_Key, bytes] = {}
        _take_entries(newest, self.map[at : at + read], version)
        with self._lock:
            self._busy = True
            try:
                _take_entries(newest, self.map[at + read : at + self._used], version)
                remaining = b"".join(newest.values())
                cells[StatusCell.SIDE_USED] = 0
                cells[StatusCell.SIDE_VERSION] = version
                self.map[at : at + len(remaining)] = remaining
                cells[StatusCell.SIDE_USED] = self._used = len(remaining)
            finally:
                self._busy = False
        # What cannot be dropped must not be looked through again and again.
        self._full = max(self.shape.side * 3 // 4, (len(remaining) + self.shape.side) // 2 + 1)

    @property
    def history(self) -> int:
        """How many ops the history holds, or soon will."""
        return self.shape.slots if self.longer_from[0] == NEVER else self.shape.more

    def lengthen(self) -> None:
        """Makes the history as long as possible, for good, starting `AHEAD` ops from now.

        Only the recorder's thread may call it. An event's place depends only on its number, so ops
        that are pending or being written stay where they are.

        Raises:
            OSError: the folder has no room, or the program closed the file; nothing changes.
        """
        if self.longer_from[0] != NEVER:
            return
        if not self.shape.more:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        if not self._file.is_ours:
            raise OSError(errno.EBADF, "the program has closed the ring's file")
        # Writing into a hole of a full tmpfs would raise SIGBUS.
        os.posix_fallocate(self._file.number, self.shape.size, self.shape.more * layout.SLOT_SIZE)
        begin = self.cells[StatusCell.HEAD] + AHEAD
        self.longer_from[0] = begin
        self.cells[StatusCell.LONGER_FROM] = begin

    def slot_at(self, sequence: int) -> int:
        """Returns the offset of an event's slot."""
        places = Places(self.shape.slots, self.shape.more, self.longer_from[0])
        return self.shape.slots_offset + places.of(sequence) * layout.SLOT_SIZE

    def write_slot(self, sequence: int, body: bytes) -> None:
        """Writes the slot of a new op, and advances the head."""
        at = self.slot_at(sequence)
        layout.SLOT.pack_into(self.map, at, body, crc32(body), 0, 0, 0, 0, 0)
        self.advance_head(sequence)

    def advance_head(self, sequence: int) -> None:
        """Advances the head, never back: threads may call this out of order."""
        if sequence > self.cells[StatusCell.HEAD]:  # noqa: PLR1730 - a call may switch threads
            self.cells[StatusCell.HEAD] = sequence

    def write_note(self, text: str) -> bool:
        """Writes a note, with a mark of its time; returns whether there was room."""
        number = next(self._notes)
        written = self.write_entry(Side.NOTE, number, text[:2000])
        if written:
            self.marks.instant(MarkKind.NOTE, number)
        return written


def _entry(kind: int, number: int, text: bytes, version: int) -> bytes:
    padding, checksum = -len(text) % 8, crc32(text, version & 2**32 - 1)
    head = layout.SIDE_ENTRY.pack(len(text), kind, padding, number, checksum)
    return head + text + bytes(padding)


def _take_entries(newest: dict[_Key, bytes], entries: bytes, version: int) -> None:
    """Takes in the newest entry of each kind and number, as it is in this version, in order.

    Of those that may be dropped, the last ones remain.
    """
    head, at = layout.SIDE_ENTRY, 0
    while at + head.size <= len(entries):
        length, kind, padding, number, _ = head.unpack_from(entries, at)
        text = entries[at + head.size : at + head.size + length]
        at += head.size + length + padding
        newest.pop((kind, number), None)
        newest[kind, number] = _entry(kind, number, text, version)
    for limited, most in layout.LAST.items():
        ended = [
            key
            for key, entry in newest.items()
            if key[0] == limited and (limited != Side.GROUP or DESTROYED in entry)
        ]
        for key in ended[:-most]:
            del newest[key]


def create(folders: list[Path]) -> OwnRing:
    """Creates a ring in the first of `folders` with room for a full or a small one.

    Raises:
        NoRingSpace: no folder has room.
    """
    reasons = []
    # Containers that start together may have the same pids and start ticks (10 ms each).
    name = f"{os.getpid()}-{start_ticks()}-{PidNamespace.here().inode}{layout.SUFFIX}"
    for folder in folders:
        path = folder / name
        for shape in (layout.FULL, layout.SMALL):
            try:
                return _create(path, shape)
            except OSError as error:
                reasons.append(f"{folder}: {error.strerror}")
    advice = "set FRTOP_DIR to another folder on this host"
    raise NoRingSpace("; ".join(dict.fromkeys([*reasons, advice])))


def _create(path: Path, shape: Shape) -> OwnRing:
    # A program that replaced itself (exec) keeps pid and start time, so its old ring may exist.
    # Shrinking a file that the agent has mapped would kill the agent.
    path.unlink(missing_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, shape.size)
        try:
            os.ftruncate(descriptor, shape.longest)
        except OSError as error:
            if error.errno != errno.EFBIG:  # `ulimit -f`
                raise
            shape = shape._replace(more=0)
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
        ring = OwnRing(path, descriptor, shape)
        with suppress(OSError):  # Linux 5.14 knows it
            # A training step would fault in each page, at some 30 µs.
            ring.map.madvise(_MADV_POPULATE_WRITE, 0, shape.size)
        ring.write_header()
    except BaseException:
        os.close(descriptor)
        path.unlink(missing_ok=True)
        raise
    return ring


def start_ticks() -> int:
    """Returns when this process started, in clock ticks since boot; unique with its pid."""
    found = pid_stat.read("/proc/self")
    if found is None:
        raise OSError(errno.ENOENT, "not readable", "/proc/self/stat")
    return found.start_ticks


def lengthened(ring: OwnRing) -> str:
    """Makes a ring longer; returns why not, or ""."""
    try:
        ring.lengthen()
    except OSError as error:
        return f"the ring was not made longer: {ring.path.parent}: {error.strerror}"
    return ""
