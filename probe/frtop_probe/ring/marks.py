"""Reads the marks of a ring: what the rank did besides ops, and when."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import count
from operator import attrgetter
from typing import Final, NamedTuple
from zlib import crc32

from frtop_probe.ring import layout
from frtop_probe.ring.layout import LONGEST, MarkKind, StatusCell
from frtop_probe.ring.reader import Ring

_CHUNK: Final = 256
"""Number of marks that one read copies."""
_WIDTH: Final = layout.MARK_SIZE // 8
_WORDS: Final = (0, 1, 2, 3, 6, 7)
"""Fields that are whole words: sequence number, start, number, thread, end, samples."""
_KIND: Final = 8
_SUM: Final = 10
"""Fields that are halves of words."""
_BODIES: Final = struct.Struct(
    f"={layout.MARK_BODY.size}s{layout.MARK_SIZE - layout.MARK_BODY.size}x"
)
_BEGIN: Final = attrgetter("begin_ns")
_KINDS: Final = {int(kind): kind for kind in MarkKind if kind is not MarkKind.REPORT}
_REPORTS: Final = struct.Struct(f"={layout.MARK_BODY.size}sI4xq8s")
"""Body, sum, end and value of a mark."""
_BODY_FIELDS: Final = layout.MARK_BODY.unpack


class MarkRow(NamedTuple):
    """One mark. `end_ns` is 0 while it lasts, and equals `begin_ns` if it has no duration.

    `number` depends on the kind, see `MarkKind`. `samples` is what the job reported for a step.
    """

    sequence: int
    kind: MarkKind
    begin_ns: int
    end_ns: int
    number: int
    thread: int
    samples: int


def read_marks(ring: Ring, since_ns: int = 0) -> list[MarkRow]:
    """Returns the marks that ended at `since_ns` or later, or have not ended, sorted by start.

    Leaves out marks with an unseen end, marks that the rank is writing, and reported values
    (`read_reports`).
    """
    found: list[MarkRow] = []
    for rows in _chunks(ring):
        found += rows
        # Older ones began earlier. We do not search for the few that outlast a
        # whole chunk of newer ones.
        if rows and max(row.begin_ns for row in rows) < since_ns:
            break
    lasting = _lasting(found)
    found = [row for row in found if row.end_ns and row.end_ns >= since_ns]
    return sorted([*found, *lasting], key=_BEGIN)


class ReportRow(NamedTuple):
    """A value that the job reported. `name` is the id of its name in `Ring.reports`."""

    sequence: int
    step: int
    name: int
    value: float


def read_reports(ring: Ring, after: int = 0) -> tuple[list[ReportRow], int]:
    """Returns the values that the job reported, oldest first, and the newest mark's number.

    Args:
        ring: the rank's.
        after: number of the newest mark that is known already.
    """
    head = ring.cell(StatusCell.MARKS)
    found: list[ReportRow] = []
    for copy, first in _copies(ring, head, after):
        found += reversed([row for row in _reports(copy, first) if row.sequence > after])
    return found[::-1], head


def _reports(copy: bytes, first: int) -> Iterator[ReportRow]:
    for place, (body, right, end, value) in enumerate(_REPORTS.iter_unpack(copy), first):
        sequence, begin, step, _, kind, name = _BODY_FIELDS(body)
        if (
            kind == MarkKind.REPORT
            and sequence == place
            and begin == end
            and step < LONGEST
            and crc32(value, crc32(body)) == right
        ):
            yield ReportRow(sequence, step, name, layout.REPORT_VALUE.unpack(value)[0])


def _lasting(rows: list[MarkRow]) -> list[MarkRow]:
    """Returns the last open mark of each kind and thread: exceptions have ended the others."""
    open_ended = [row for row in rows if not row.end_ns]
    last: dict[tuple[int, MarkKind], int] = {}
    for row in rows if open_ended else ():
        key = row.thread, row.kind
        last[key] = max(last.get(key, 0), row.sequence)
    return [row for row in open_ended if last[row.thread, row.kind] == row.sequence]


def watched(ring: Ring) -> frozenset[MarkKind]:
    """Returns the kinds that the rank records; it always records steps and notes."""
    bits = ring.cell(StatusCell.WATCHED)
    return frozenset(kind for kind in MarkKind if bits >> kind & 1)


def _chunks(ring: Ring) -> Iterator[list[MarkRow]]:
    """Yields all marks, newest first, in chunks."""
    for copy, first in _copies(ring, ring.cell(StatusCell.MARKS)):
        yield _rows(memoryview(copy), first)


def _copies(ring: Ring, head: int, after: int = 0) -> Iterator[tuple[bytes, int]]:
    """Yields copies of the marks up to `head`, newest first, and the number of their first."""
    places = ring.shape.marks
    oldest = max(1, head - places + 1, after + 1)
    while head >= oldest:
        last = head % places
        first = max(last - min(_CHUNK, head - oldest + 1) + 1, 0)
        yield ring.marks_at(first, last - first + 1), head - (last - first)
        head -= last - first + 1


def _rows(copy: memoryview, first: int) -> list[MarkRow]:
    """Returns the marks from number `first` on. By columns it is five times as fast."""
    words, halves = copy.cast("q"), copy.cast("I")
    sums = [crc32(body) for (body,) in _BODIES.iter_unpack(copy)]
    columns = [words[word::_WIDTH].tolist() for word in _WORDS]
    kinds, expected = (halves[half :: 2 * _WIDTH].tolist() for half in (_KIND, _SUM))
    return [
        MarkRow(sequence, known[kind], begin, end, number, thread, samples)
        for known in (_KINDS,)
        for place, sequence, begin, number, thread, end, samples, kind, right, made in zip(
            count(first), *columns, kinds, expected, sums, strict=False
        )
        if right == made
        and sequence == place
        and kind in known
        and 0 < begin < LONGEST
        and (end == 0 or begin <= end < LONGEST)
        and 0 <= number < LONGEST
        and 0 <= samples < LONGEST
    ]
