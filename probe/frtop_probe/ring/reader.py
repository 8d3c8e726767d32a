"""Reads a ring from outside its rank: live, hung, or dead.

Nothing in the file is trusted: sizes are checked before mapping, entries before decoding,
and whatever was being written at the moment of reading is dropped, not guessed.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from frtop_probe.ring import contact, layout
from frtop_probe.ring.layout import Cell, Event, Flag, Shape, Side

MAX_SIZE: Final = 8 * 1024 * 1024
_FLOCK: Final = struct.Struct("hhqqi")
"""`struct flock` of 64-bit Linux: type, whence, start, length, pid."""


class RingError(Exception):
    """The file is no ring that this version can read; the text says why."""


@dataclass(frozen=True, slots=True)
class Birth:
    """What was fixed when the ring was made. Times in ns of the host's clocks."""

    pid: int
    start_ticks: int
    pid_namespace: int
    boot: bytes
    monotonic_ns: int
    wall_ns: int
    recorder_tid: int
    main_ident: int


@dataclass(frozen=True, slots=True)
class GroupRow:
    """Last op of a group: `number` counts collectives, `p2p` sends and receives."""

    group: int
    number: int
    p2p: int
    sequence: int
    issued_ns: int
    signature: int
    site: int


@dataclass(frozen=True, slots=True)
class EventRow:
    """One slot. `done_ns` is 0 while pending, negative when it failed at that time.

    An untracked op is pending only while the call that issues it has not returned: its
    flag is set then, and nobody here learns when it completes.
    """

    sequence: int
    issued_ns: int
    done_ns: int
    number: int
    thread: int
    group: int
    signature: int
    site: int
    timeout_ms: int
    flags: Flag
    reduce: str | None
    event: Event

    @property
    def pending(self) -> bool:
        open_ended = self.event in (Event.OP, Event.PSEUDO)
        return open_ended and self.done_ns == 0 and Flag.UNTRACKED not in self.flags


@dataclass(frozen=True, slots=True)
class Glimpse:
    """A ring by its header alone. `last_sign_wall_ns` is in ns since the epoch."""

    birth: Birth
    inode: int
    last_sign_wall_ns: int
    writer_lives: bool


def glimpse(path: Path) -> Glimpse:
    """Whose ring it is and whether that process lives; maps nothing, and cheap.

    Raises:
        RingError: not a ring, of another version, or damaged.
        OSError: the file cannot be opened.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        status = os.fstat(descriptor)
        header = os.pread(descriptor, layout.GROUPS_OFFSET, 0)
        if len(header) < layout.GROUPS_OFFSET:
            raise RingError(f"{path.name}: {len(header)} bytes is no ring")
        birth, _ = _identity(header, status.st_size, path)
        cells = memoryview(header)[layout.CELLS_OFFSET :].cast("q")
        last = max(cells[Cell.BEAT_NS], cells[Cell.EXCEPTION_NS], birth.monotonic_ns)
        sign = birth.wall_ns + last - birth.monotonic_ns
        return Glimpse(birth, status.st_ino, sign, _locked(descriptor))
    finally:
        os.close(descriptor)


class Ring:
    """A mapped ring. Not thread-safe: one reader, one thread."""

    def __init__(self, path: Path) -> None:
        """Maps `path`.

        Raises:
            RingError: not a ring, of another version, or damaged.
            OSError: the file cannot be opened.
        """
        self.path = path
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            status = os.fstat(descriptor)
            self._inode, size = status.st_ino, status.st_size
            if not layout.IDENTITY_SIZE <= size <= MAX_SIZE:
                raise RingError(f"{path.name}: {size} bytes is no ring")
            self._map = mmap.mmap(descriptor, size, prot=mmap.PROT_READ)
        finally:
            os.close(descriptor)
        try:
            self.birth, self.shape = _identity(self._map, size, path)
        except RingError:
            self._map.close()
            raise
        self._cells = memoryview(self._map)[layout.CELLS_OFFSET : layout.GROUPS_OFFSET].cast("q")
        slots = memoryview(self._map)[self.shape.slots_offset : self.shape.side_offset]
        self._slot_words = slots.cast("q")
        self._side_read = 0
        self.who: dict[str, Any] = {}
        self.signatures: dict[int, dict[str, Any]] = {}
        self.sites: dict[int, tuple[str, int, str]] = {}
        self.groups: dict[int, dict[str, Any]] = {}
        self.exceptions: list[dict[str, Any]] = []
        self.notes: dict[int, str] = {}
        self.refresh()

    def close(self) -> None:
        self._cells.release()
        self._slot_words.release()
        self._map.close()

    def remove(self) -> None:
        """Takes the file away, and what lies beside it, unless another one has its name."""
        with suppress(OSError):
            if self.path.lstat().st_ino == self._inode:
                contact.remove(self.path)

    def cell(self, cell: Cell) -> int:
        return self._cells[cell]

    @property
    def slot_words(self) -> memoryview:
        """All slots, word by word; see `columns`."""
        return self._slot_words

    @property
    def recorder_tid(self) -> int:
        """Native id of the recorder's thread, 0 while it has not started."""
        tid: int = layout.IDENTITY.unpack_from(self._map, 0)[9]
        return tid

    def writer_lives(self) -> bool:
        """Whether the rank still holds its record lock; freed at its death by the kernel."""
        return locked(self.path)

    def check(self) -> None:
        """Looks whether the file still is as large as it was mapped.

        Reading beyond the end of a file that somebody has cut off would end this process
        (SIGBUS). One that was removed, or replaced, is whole under its mapping.

        Raises:
            RingError: it was cut off.
        """
        with suppress(OSError):
            status = self.path.lstat()
            if status.st_ino == self._inode and status.st_size < self.shape.size:
                raise RingError(f"{self.path.name} was cut off at {status.st_size} bytes")

    def refresh(self) -> None:
        """Takes in what was added to the side table since the last call.

        Raises:
            RingError: the file was cut off.
        """
        self.check()
        used = min(self._cells[Cell.SIDE_USED], self.shape.side)
        header = layout.SIDE_ENTRY
        while self._side_read + header.size <= used:
            at = self.shape.side_offset + self._side_read
            length, kind, padding, number = header.unpack_from(self._map, at)
            step = header.size + length + padding
            if self._side_read + step > used:
                return
            self._side_read += step
            start = at + header.size
            try:
                payload = json.loads(self._map[start : start + length])
                self._take(kind, number, payload)
            except (ValueError, TypeError, KeyError, IndexError, RecursionError):
                continue  # one bad entry must not hide the rest

    def _take(self, kind: int, number: int, payload: Any) -> None:
        if kind == Side.SIGNATURE:
            self.signatures[number] = dict(payload)
        elif kind == Side.SITE:
            file, line, function = payload
            self.sites[number] = (str(file), int(line), str(function))
        elif kind == Side.GROUP:
            self.groups[number] = dict(payload)
        elif kind == Side.IDENTITY:
            self.who = dict(payload)
        elif kind == Side.EXCEPTION:
            self.exceptions.append(dict(payload))
        elif kind == Side.NOTE:
            self.notes[number] = str(payload)

    def group_rows(self) -> Iterator[GroupRow]:
        """The groups that have had an op, as far as they can be read just now."""
        row = layout.GROUP_ROW
        for group in range(self.shape.groups):
            at = layout.GROUPS_OFFSET + group * row.size
            values = self._consistent(row, at, 8)
            if values is not None and values[0]:
                yield GroupRow(group, *values[1:7])

    def usual_wait_ns(self, site: int) -> tuple[int, int]:
        """How many ops from a call site were measured, and their smoothed wait in ns."""
        if not 0 < site < self.shape.sites:
            return 0, 0
        at = self.shape.sites_offset + site * layout.SITE_ROW.size
        values = self._consistent(layout.SITE_ROW, at, 0)
        return (values[1], values[2]) if values is not None else (0, 0)

    def events(self, since: int, limit: int) -> tuple[list[EventRow], int]:
        """Events after sequence number `since`, oldest first, and how many were lost.

        At most the newest `limit` are read; those skipped for the limit are no losses.
        """
        head = self._cells[Cell.HEAD]
        first = max(since + 1, head - limit + 1, 1)
        oldest = max(first, head - self.shape.slots + 1)
        found = [row for n in range(oldest, head + 1) if (row := self.event(n)) is not None]
        return found, (head - first + 1) - len(found) if head >= first else 0

    def event(self, sequence: int) -> EventRow | None:
        """One event, or None if it is being written or was overwritten."""
        if sequence < 1:
            return None
        at = self.shape.slots_offset + (sequence % self.shape.slots) * layout.SLOT_SIZE
        row = self._slot(at)
        return row if row is not None and row.sequence == sequence else None

    def pending(self) -> list[EventRow]:
        """What was issued and is not complete, oldest first."""
        found: dict[int, EventRow] = {}
        for index in range(self.shape.leftovers):
            row = self._slot(self.shape.leftovers_offset + index * layout.SLOT_SIZE)
            if row is not None and row.pending:
                found[row.sequence] = row
        head = self._cells[Cell.HEAD]
        oldest = max(self._cells[Cell.OLDEST], head - self.shape.slots + 1, 1)
        for sequence in self._not_done(oldest, head):
            row = self.event(sequence)
            if row is not None and row.pending:
                found[sequence] = row
        return [found[sequence] for sequence in sorted(found)]

    def _not_done(self, oldest: int, newest: int) -> Iterator[int]:
        """Sequence numbers whose slots have no `done`.

        One op that stays pending makes the window thousands long; picking that one word
        out of every slot is a hundred times cheaper than decoding them all.
        """
        width, slots = layout.SLOT_SIZE // 8, self.shape.slots
        while oldest <= newest:
            first = oldest % slots
            count = min(newest - oldest + 1, slots - first)
            begin = first * width + layout.SLOT_DONE // 8
            done = self._slot_words[begin : begin + (count - 1) * width + 1 : width].tolist()
            yield from (oldest + index for index, at in enumerate(done) if at == 0)
            oldest += count

    def _slot(self, at: int) -> EventRow | None:
        values = self._consistent(layout.SLOT, at, 0)
        if values is None or not values[0]:
            return None
        issued, done, number, thread, group, signature, site, timeout = values[1:9]
        flags, reduce, event, _, sequence = values[9:]
        try:
            names = layout.REDUCE_OPS
            reduce_name = names[reduce] if reduce < len(names) else "other"
            return EventRow(
                sequence,
                issued,
                done,
                number,
                thread,
                group,
                signature,
                site,
                timeout,
                Flag(flags),
                reduce_name,
                Event(event),
            )
        except ValueError:
            return None

    def _consistent(self, row: struct.Struct, at: int, reserved: int) -> tuple[Any, ...] | None:
        """Tail, then body and head: what is equal at both ends was written whole."""
        tail = self._map[at + row.size - reserved - 8 : at + row.size - reserved]
        values = row.unpack_from(self._map, at)
        head = self._map[at : at + 8]
        return values if tail == head else None


def locked(path: Path) -> bool:
    """Whether a process holds a record lock on the file, in whatever container.

    The file is opened anew each time: closing any descriptor of a file drops the
    locks that the *closing* process holds on it, and the agent holds none.

    Raises:
        OSError: the file cannot be opened, or has no such locks.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        return _locked(descriptor)
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, query)
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)


def _identity(header: bytes | mmap.mmap, size: int, path: Path) -> tuple[Birth, Shape]:
    (
        magic,
        version,
        declared,
        start_ticks,
        pid_namespace,
        boot,
        monotonic_ns,
        wall_ns,
        pid,
        recorder_tid,
        main_ident,
        *_,
    ) = fields = layout.IDENTITY.unpack_from(header, 0)
    if magic != layout.MAGIC:
        raise RingError(f"{path.name}: not a ring, or not finished yet")
    if version != layout.VERSION:
        raise RingError(f"{path.name}: ring version {version}, this frtop reads {layout.VERSION}")
    groups, sites, leftovers, slots, side = fields[-6:-1]
    shape = Shape(groups, sites, leftovers, slots, side)
    if declared != size or shape.size != size or not slots:
        raise RingError(f"{path.name}: section sizes do not add up")
    birth = Birth(
        pid, start_ticks, pid_namespace, boot, monotonic_ns, wall_ns, recorder_tid, main_ident
    )
    return birth, shape
