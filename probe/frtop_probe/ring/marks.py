"""Reads the marks of a ring: what the rank did beside ops, and when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple
from zlib import crc32

from frtop_probe.ring import layout
from frtop_probe.ring.layout import MarkKind, StatusCell
from frtop_probe.ring.reader import Ring

_CHUNK: Final = 256
"""Marks that are copied at once."""
_KINDS: Final = {int(kind): kind for kind in MarkKind}
_LONGEST: Final = 2**62
"""Values in a ring may be anything; the difference of two must fit the wire."""


class MarkRow(NamedTuple):
    """One mark. `end_ns` is 0 while it lasts, and `begin_ns` of what has no duration.

    `number` depends on the kind, see `MarkKind`. `samples` is what the job said of a step.
    """

    sequence: int
    kind: MarkKind
    begin_ns: int
    end_ns: int
    number: int
    thread: int
    samples: int


def read_marks(ring: Ring, since_ns: int = 0) -> list[MarkRow]:
    """Returns the marks that end at `since_ns` or later, or last, ordered by their begin.

    Marks that nobody saw end are left out, and so are those that are being written.
    """
    found: list[MarkRow] = []
    later: set[tuple[int, MarkKind]] = set()
    for rows in _chunks(ring):
        for row in reversed(rows):
            # One that lasts is the last of its kind in a thread: of another, an exception was
            # the end.
            if row.end_ns >= since_ns if row.end_ns else (row.thread, row.kind) not in later:
                found.append(row)
            later.add((row.thread, row.kind))
        # Older ones began before these. The few of them that last longer than so many newer ones
        # are not looked for.
        if rows and max(row.begin_ns for row in rows) < since_ns:
            break
    found.sort(key=lambda row: row.begin_ns)
    return found


def watched(ring: Ring) -> frozenset[MarkKind]:
    """Returns the kinds that are recorded when they happen; steps and notes always are."""
    bits = ring.cell(StatusCell.WATCHED)
    return frozenset(kind for kind in MarkKind if bits >> kind & 1)


def _chunks(ring: Ring) -> Iterator[list[MarkRow]]:
    """Yields all marks, the newest first, some at a time."""
    head, count, size = ring.cell(StatusCell.MARKS), ring.shape.marks, layout.MARK_SIZE
    oldest = max(1, head - count + 1)
    while head >= oldest:
        last = head % count
        first = max(last - min(_CHUNK, head - oldest + 1) + 1, 0)
        copy = bytes(ring.mark_bytes[first * size : (last + 1) * size])
        yield [row for row in _rows(copy, head - (last - first)) if row is not None]
        head -= last - first + 1


def _rows(copy: bytes, first: int) -> Iterator[MarkRow | None]:
    entries = layout.MARK.iter_unpack(copy)
    for expected, (body, checksum, end, samples) in enumerate(entries, first):
        if crc32(body) != checksum:
            continue
        sequence, begin, number, thread, kind, _ = layout.MARK_BODY.unpack(body)
        known = _KINDS.get(kind)
        if sequence != expected or known is None or not _possible(begin, end, number, samples):
            continue
        yield MarkRow(sequence, known, begin, end, number, thread, samples)


def _possible(begin: int, end: int, number: int, samples: int) -> bool:
    return (
        0 < begin < _LONGEST
        and (end == 0 or begin <= end < _LONGEST)
        and number < _LONGEST
        and 0 <= samples < _LONGEST
    )
