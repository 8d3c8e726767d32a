"""Reads the ring of a rank, live, hung or dead, from another process.

The reader trusts nothing in the file: it checks sizes and entries before decoding, and drops
what the rank was writing meanwhile. It copies what it reads and maps nothing: if a mapped file
shrinks, SIGBUS ends the process that reads it, whatever it has checked.
"""

from __future__ import annotations

import json
import math
import os
import stat
import struct
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple
from zlib import crc32

from frtop_probe.ring import beside, layout, sizes
from frtop_probe.ring.header import RingClosed, RingError, locked, read_header
from frtop_probe.ring.layout import LONGEST, MAX_DESTROYED, Event, Flag, Side, StatusCell
from frtop_probe.ring.places import Places

MAX_SIZE: Final = 8 * 1024 * 1024
_WORD: Final = struct.Struct("=q")
_MAX_DIGITS: Final = 20
"""Most digits of an integer in the side table: as many as the longest 64-bit integer has."""


class OpKey(NamedTuple):
    """What an op's signature depends on, except its reduce op.

    `form` is an id; `party` is the index in the group of the root or peer, plus 1 (0: none);
    `sizes` is the position of the sizes (0: none, or unknown).
    """

    group: int
    form: int
    party: int
    sizes: int


@dataclass(frozen=True, slots=True)
class GroupRow:
    """Counts of a group, and its last op. `number` counts collectives, `p2p` sends and receives.

    `enqueued` and `completed` are numbers of collectives on its device, and `advanced_ns` is when
    `completed` was last seen to change. They may be outdated unless the device is `watched`.
    """

    group: int
    number: int
    p2p: int
    sequence: int
    enqueued: int = 0
    completed: int = 0
    advanced_ns: int = 0
    watched: int = 0


@dataclass(frozen=True, slots=True)
class EventRow:
    """One slot. `done_ns` is 0 while pending, and negative if the op failed at that time.

    `wait_ns` is when a thread began to wait for the op; if negative, when the last wait ended; 0 if
    no wait was seen.

    An untracked op counts as pending only until its call returns; after that, its
    completion is unknown.
    """

    sequence: int
    issued_ns: int
    done_ns: int
    wait_ns: int
    number: int
    thread: int
    key: OpKey
    site: int
    timeout_ms: int
    flags: Flag
    reduce: str | None
    event: Event
    issuer: int = 0
    """See `layout.IssuePhase`."""
    message: int = 0
    """See `layout.SLOT`."""

    @property
    def group(self) -> int:
        return self.key.group

    @property
    def pending(self) -> bool:
        return self.done_ns == 0 and Flag.UNTRACKED not in self.flags


class SideTable:
    """What a side table says, as far as it was read."""

    def __init__(self) -> None:
        self.rank_identity: dict[str, Any] = {}
        self.forms: dict[int, dict[str, Any]] = {}
        self.sites: dict[int, tuple[str, int, str]] = {}
        self.groups: dict[int, dict[str, Any]] = {}
        """All but those that were destroyed before the last `MAX_DESTROYED`."""
        self.newest_group = 0
        self.exceptions: list[dict[str, Any]] = []
        self.notes: dict[int, str] = {}
        self.modules: dict[int, tuple[str, ...]] = {}
        """Contents of MODULE entries, by number."""
        self.reports: dict[int, str] = {}
        """Names of values that the job reports, by number."""
        self.transports: tuple[tuple[str, str], ...] | None = None  # None: never written
        self._destroyed = deque[int]()

    def is_dropped(self, group: int) -> bool:
        """Whether a group was destroyed before the last `MAX_DESTROYED`."""
        return group not in self.groups and group <= self.newest_group

    def take(self, kind: int, number: int, payload: Any) -> None:
        if kind == Side.FORM:
            self.forms[number] = dict(payload)
        elif kind == Side.SITE:
            file, line, function = payload
            self.sites[number] = (str(file), int(line), str(function))
        elif kind == Side.GROUP:
            self._take_group(number, dict(payload))
        elif kind == Side.IDENTITY:
            self.rank_identity = dict(payload)
        elif kind == Side.EXCEPTION:
            self.exceptions.append(dict(payload))
        elif kind == Side.NOTE:
            self.notes[number] = str(payload)
        elif kind == Side.MODULE:
            path, root, part, *members = payload
            self.modules[number] = str(path), str(root), str(part), *map(str, members)
        elif kind == Side.REPORT and 0 < number <= layout.MAX_REPORT_NAMES:
            self.reports[number] = str(payload)[: layout.MAX_REPORT_NAME]
        elif kind == Side.TRANSPORTS:
            self.transports = tuple((str(name), str(sign)) for name, sign in payload)

    def _take_group(self, number: int, entry: dict[str, Any]) -> None:
        self.groups[number] = entry
        self.newest_group = max(self.newest_group, number)
        if entry.get("destroyed"):
            self._destroyed.append(number)
        if len(self._destroyed) > MAX_DESTROYED:
            self.groups.pop(self._destroyed.popleft(), None)


class Ring(SideTable):
    """A ring. Not thread-safe. Reads raise `RingError` if the file was truncated or closed."""

    _file = -1

    def __init__(self, path: Path) -> None:
        """Opens `path`.

        Raises:
            RingError: the file is not a ring, has another version, or is damaged.
            OSError: the file cannot be opened.
        """
        super().__init__()
        self.path = path
        # Does not wait if the folder's owner has put a pipe there.
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            status = os.fstat(self._file)
            self._inode, size = status.st_ino, status.st_size
            if not (stat.S_ISREG(status.st_mode) and layout.HEADER_SIZE <= size <= MAX_SIZE):
                raise RingError(f"{path.name}: {size} bytes is not a ring")
            self.header, self.shape = read_header(self._read(0, layout.HEADER_SIZE), size, path)
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        self.head = 0
        """The newest op when the side table was last read, which has all that it refers to."""
        self._side_read = self._side_version = 0
        self._anew: SideTable | None = None
        """A side table that was written anew, until it is read; meanwhile the old one counts."""
        self.refresh()

    def close(self) -> None:
        descriptor, self._file = self._file, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()

    def _read(self, at: int, size: int) -> bytes:
        """Copies bytes of the file."""
        if self._file < 0:
            raise RingClosed("it was closed")
        try:
            found = os.pread(self._file, size, at)
        except OSError as error:
            raise RingError(f"it cannot be read: {error.strerror}") from error
        if len(found) != size:
            raise RingError(f"it was truncated to {self._size()} bytes")
        return found

    def _size(self) -> int:
        return os.fstat(self._file).st_size

    def slots_at(self, place: int, count: int) -> bytes:
        """Copies consecutive slots; see `places` and `bulk_read`."""
        size = layout.SLOT_SIZE
        return self._read(self.shape.slots_offset + place * size, count * size)

    def issued_at(self, place: int) -> int:
        """Returns when the op in a slot was issued, whether the slot is complete or not."""
        at = self.shape.slots_offset + place * layout.SLOT_SIZE + layout.SLOT_ISSUED
        return self._word(at)

    def marks_at(self, place: int, count: int) -> bytes:
        """Copies consecutive marks; see `ring.marks`."""
        size = layout.MARK_SIZE
        return self._read(self.shape.marks_offset + place * size, count * size)

    def _word(self, at: int) -> int:
        word: int = _WORD.unpack(self._read(at, _WORD.size))[0]
        return word

    def remove(self) -> None:
        """Removes the ring and its socket, unless the name belongs to another file now."""
        with suppress(OSError):
            if self.path.lstat().st_ino == self._inode:
                beside.remove_ring(self.path)

    def cell(self, cell: StatusCell) -> int:
        return max(-LONGEST, min(self._word(layout.CELLS_OFFSET + 8 * cell), LONGEST))

    @property
    def recorder_tid(self) -> int:
        """Native id of the recorder's thread; 0 until it starts."""
        tid: int = layout.HEADER.unpack_from(self._read(0, layout.HEADER_SIZE))[9]
        return tid

    def writer_lives(self) -> bool:
        """Returns whether the rank holds its record lock, which the kernel frees when it dies."""
        return locked(self.path)

    def refresh(self) -> None:
        """Reads side-table entries added since the last call.

        Raises:
            RingError: the file was truncated.
        """
        self.head = self.cell(StatusCell.HEAD)
        version = self.cell(StatusCell.SIDE_VERSION) & 2**32 - 1
        if version != self._side_version:
            self._side_version, self._side_read, self._anew = version, 0, SideTable()
        used = min(self.cell(StatusCell.SIDE_USED), self.shape.side)
        if self._size() < self.shape.longest:
            raise RingError(f"it was truncated to {self._size()} bytes")
        if used >= self._side_read + layout.SIDE_ENTRY.size:
            added = self._read(self.shape.side_offset + self._side_read, used - self._side_read)
            self._side_read += self._take_entries(added, self._anew or self)
        # Less may be used than was read: the number seen before was of the table before.
        if self._anew is not None and 0 < used <= self._side_read:
            vars(self).update(vars(self._anew))
            self._anew = None

    def _take_entries(self, added: bytes, table: SideTable) -> int:
        """Takes in the entries; returns how many bytes of them are complete."""
        header, at, complete = layout.SIDE_ENTRY, 0, 0
        while at + header.size <= len(added):
            length, kind, padding, number, checksum = header.unpack_from(added, at)
            text = added[at + header.size : at + header.size + length]
            at += header.size + length + padding
            # A processor that reorders stores shows the entry later: until then it is all zeros,
            # whose sum is right for no text.
            if not length or at > len(added) or crc32(text, self._side_version) != checksum:
                break
            complete = at
            with suppress(ValueError, TypeError, LookupError, RecursionError):
                # one bad entry must not hide the others
                table.take(kind, number, _side_json.decode(text.decode("utf-8", "surrogatepass")))
        return complete

    def group_rows(self) -> Iterator[GroupRow]:
        """Yields the rows of groups with ops; skips rows with impossible numbers."""
        width, words = layout.GROUP_ROW.size // 8, self._group_words()
        for group, sequence in enumerate(words[::width].tolist()):
            if not sequence:
                continue
            at = group * width
            number, p2p, *device = row = words[at + 1 : at + 7].tolist()
            if min(sequence, *row) < 0 or max(sequence, *row) >= LONGEST:
                continue
            yield GroupRow(group, number, p2p, sequence, *device)

    def ops(self) -> int:
        """Returns how many ops were issued since the start."""
        words, width = self._group_words(), layout.GROUP_ROW.size // 8
        found = sum(words[1::width].tolist()) + sum(words[2::width].tolist())
        return min(max(0, found), LONGEST)

    def _group_words(self) -> memoryview:
        size = self.shape.groups * layout.GROUP_ROW.size
        return memoryview(self._read(layout.GROUPS_OFFSET, size)).cast("q")

    def last_op(self, group: GroupRow) -> EventRow | None:
        """Returns a group's last op; None if newer ops overwrote it before the copy.

        A copy lacks the end of the op.
        """
        row, sequence = self.event(group.sequence), group.sequence
        if row is None and group.group < self.shape.groups:
            at = layout.GROUPS_OFFSET + group.group * layout.GROUP_ROW.size + layout.GROUP_COPY
            copy = self._read(at, layout.COPIED) + bytes(layout.SLOT_SIZE - layout.COPIED)
            row = _event_row(copy, 0)
        return row if row is not None and row.sequence == sequence else None

    def typical_wait_ns(self, site: int) -> tuple[int, int]:
        """Returns how many ops from a call site were measured, and their smoothed wait in ns."""
        if not 0 < site < self.shape.sites:
            return 0, 0
        at = self.shape.sites_offset + site * layout.SITE_ROW.size
        found = self._body(layout.SITE_ROW, at)
        if found is None:
            return 0, 0
        count, wait, _ = layout.SITE_BODY.unpack(found)
        return (count, wait) if wait >= 0 and max(count, wait) < LONGEST else (0, 0)

    def sizes(self, position: int) -> tuple[int, ...] | None:
        """Returns the integers of the record at a position; None if it was overwritten."""
        if position < 1:
            return None
        head = sizes.head(self._chunks(position, 1), position)
        if head is None:
            return None
        count, width = head
        needed = layout.SIZES.size + count * width
        chunks = -(-needed // layout.CHUNK)
        if chunks > self.shape.chunks:
            return None
        return sizes.integers(self._chunks(position, chunks), position)

    def _chunks(self, first: int, count: int) -> bytes:
        begin = first % self.shape.chunks
        straight = min(count, self.shape.chunks - begin)
        at, chunk = self.shape.sizes_offset, layout.CHUNK
        return self._read(at + begin * chunk, straight * chunk) + self._read(
            at, (count - straight) * chunk
        )

    def _body(self, row: struct.Struct, at: int) -> bytes | None:
        """Copies a row's body; None if it is empty or the rank is writing it."""
        values = row.unpack(self._read(at, row.size))
        body: bytes = values[0]
        return body if crc32(body) == values[1] else None

    @property
    def places(self) -> Places:
        longer_from = self.cell(StatusCell.LONGER_FROM) if self.shape.more else 0
        return Places(self.shape.slots, self.shape.more, longer_from)

    def oldest(self, head: int) -> int:
        """Returns the oldest event that no event up to `head` has overwritten."""
        return self.places.oldest(head)

    def events(self, since: int, limit: int) -> tuple[list[EventRow], int]:
        """Returns events after sequence number `since`, oldest first, and how many were lost.

        Reads at most the newest `limit`; events skipped for the limit do not count as lost.
        """
        head = self.cell(StatusCell.HEAD)
        first = max(since + 1, head - limit + 1, 1)
        oldest = max(first, self.oldest(head))
        found, number = [], oldest
        for place, count in self.places.runs(oldest, head):
            copy = self.slots_at(place, count)
            rows = (_event_row(copy, n * layout.SLOT_SIZE) for n in range(count))
            found += [
                row for n, row in enumerate(rows, number) if row is not None and row.sequence == n
            ]
            number += count
        return found, (head - first + 1) - len(found) if head >= first else 0

    def event(self, sequence: int) -> EventRow | None:
        """Returns one event; None if it is being written or was overwritten."""
        if sequence < 1:
            return None
        row = _event_row(self.slots_at(self.places.of(sequence), 1), 0)
        return row if row is not None and row.sequence == sequence else None

    def pending(self) -> list[EventRow]:
        """Returns ops that were issued and are not complete, oldest first."""
        found: dict[int, EventRow] = {}
        size = layout.SLOT_SIZE
        copy = self._read(self.shape.overflow_offset, self.shape.overflow * size)
        for at in range(0, len(copy.rstrip(b"\0")), size):  # most rings have none
            row = _event_row(copy, at)
            if row is not None and row.pending:
                found[row.sequence] = row
        head = self.cell(StatusCell.HEAD)
        oldest = max(self.cell(StatusCell.OLDEST), self.oldest(head))
        for sequence in self._not_done(oldest, head):
            row = self.event(sequence)
            if row is not None and row.pending:
                found[sequence] = row
        return [found[sequence] for sequence in sorted(found)]

    def _not_done(self, oldest: int, newest: int) -> Iterator[int]:
        """Yields sequence numbers whose slots have no `done`.

        One op that stays pending makes the window thousands of slots long. Reading one word
        of each slot is a hundred times cheaper than decoding them all.
        """
        width = layout.SLOT_SIZE // 8
        for place, count in self.places.runs(oldest, newest):
            words = memoryview(self.slots_at(place, count)).cast("q")
            done = words[layout.SLOT_DONE // 8 :: width].tolist()
            issued = words[layout.SLOT_ISSUED // 8 :: width].tolist()
            ends = zip(done, issued, strict=True)
            yield from (oldest + n for n, (at, since) in enumerate(ends) if abs(at) < since)
            oldest += count


def _event_row(data: bytes, at: int) -> EventRow | None:
    body, checksum, later_flags, reduce, message, done, wait = layout.SLOT.unpack_from(data, at)
    if crc32(body) != checksum:
        return None  # empty, or being written
    values = layout.SLOT_BODY.unpack(body)
    sequence, issued, number, thread, group, form, site, timeout = values[:8]
    party, event, flags, issuer, record = values[8:]
    if (
        not 0 <= issued < LONGEST
        or max(sequence, number, thread, record, abs(done), abs(wait)) >= LONGEST
    ):
        return None
    names = layout.REDUCE_OPS
    try:
        return EventRow(
            sequence,
            issued,
            # Times before the issue belong to the slot's previous event.
            done if abs(done) >= issued else 0,
            wait if abs(wait) >= issued else 0,
            number,
            thread,
            OpKey(group, form, party, record),
            site,
            timeout,
            Flag(flags | later_flags),
            names[reduce] if reduce < len(names) else "other",
            Event(event),
            issuer,
            message,
        )
    except ValueError:
        return None


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def _integer(text: str) -> int | None:
    return int(text) if len(text) <= _MAX_DIGITS else None


_side_json: Final = json.JSONDecoder(
    parse_float=_finite, parse_int=_integer, parse_constant=lambda _: None
)
"""Decodes NaN, infinities and integers of too many digits as null."""
