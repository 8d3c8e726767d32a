"""Writes marks into the ring: what a rank does besides ops, and when.

This runs several times per training step, in the program's threads, so everything is bound once,
as in `hook`.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from mmap import mmap
from typing import Final
from zlib import crc32

from frtop_probe.ring import layout
from frtop_probe.ring.layout import MarkKind, Shape, StatusCell

UNSEEN: Final = -1
"""End of a mark whose end was not seen, for instance because of an exception."""
MAX_NUMBER: Final = 2**62 - 1
"""Largest number of a step, and of samples."""


class MarkWriter:
    """The marks of one ring."""

    def __init__(self, data: mmap, words: memoryview, shape: Shape) -> None:
        """`words` is `data` as 64-bit words."""
        self._words = words
        self._first = shape.marks_offset // 8
        self._count = shape.marks
        self._watched = layout.CELLS_OFFSET // 8 + StatusCell.WATCHED
        self.begin, self.instant, self.report = _writers(data, words, shape)
        self.end = _finisher(words, shape)

    begin: Callable[[int, int], int]
    """Begins a mark of a kind, with a number; returns its sequence number for `end`."""
    instant: Callable[[int, int], int]
    """The same for a mark without a duration."""
    report: Callable[[int, int, float], None]
    """Writes a value that the job reports: the step, the id of its name, the value."""
    end: Callable[[int], None]
    """Ends a mark now."""

    def use(
        self,
        begin: Callable[[int, int], int],
        instant: Callable[[int, int], int],
        report: Callable[[int, int, float], None],
        end: Callable[[int], None],
    ) -> None:
        """Writes marks by other functions from now on; they go on with the numbers."""
        self.begin, self.instant, self.report, self.end = begin, instant, report, end

    def watch(self, *kinds: MarkKind) -> None:
        """Notes that marks of these kinds are recorded from now on."""
        for kind in kinds:
            self._words[self._watched] |= 1 << kind

    def unwatch(self, kind: MarkKind) -> None:
        """Notes that marks of this kind are no longer recorded."""
        self._words[self._watched] &= ~(1 << kind)

    def abandon(self, sequence: int) -> None:
        """Notes that the end of a mark was not seen."""
        at = self._word_of(sequence)
        if self._words[at] == sequence:
            self._words[at + layout.MARK_END // 8] = UNSEEN

    def add_samples(self, sequence: int, samples: int) -> None:
        at = self._word_of(sequence)
        if self._words[at] == sequence:
            known = self._words[at + layout.MARK_SAMPLES // 8]
            self._words[at + layout.MARK_SAMPLES // 8] = min(known + samples, MAX_NUMBER)

    def _word_of(self, sequence: int) -> int:
        return self._first + sequence % self._count * layout.MARK_SIZE // 8


def _writers(
    data: mmap, words: memoryview, shape: Shape
) -> tuple[Callable[[int, int], int], Callable[[int, int], int], Callable[[int, int, float], None]]:
    first, count, size = shape.marks_offset, shape.marks, layout.MARK_SIZE
    head = layout.CELLS_OFFSET // 8 + StatusCell.MARKS
    next_sequence = itertools.count(1).__next__
    clock, thread_ident, checksum = time.monotonic_ns, threading.get_ident, crc32
    pack_body, pack_mark = layout.MARK_BODY.pack, layout.MARK.pack_into
    pack_report, pack_value = layout.REPORT.pack_into, layout.REPORT_VALUE.pack
    reported = int(MarkKind.REPORT)

    def begin(kind: int, number: int) -> int:
        sequence = next_sequence()
        body = pack_body(sequence, clock(), number, thread_ident(), kind, 0)
        pack_mark(data, first + sequence % count * size, body, checksum(body), 0, 0)
        if sequence > words[head]:  # noqa: PLR1730 - a call may switch threads
            words[head] = sequence
        return sequence

    def instant(kind: int, number: int) -> int:
        sequence, now = next_sequence(), clock()
        body = pack_body(sequence, now, number, thread_ident(), kind, 0)
        pack_mark(data, first + sequence % count * size, body, checksum(body), now, 0)
        if sequence > words[head]:  # noqa: PLR1730
            words[head] = sequence
        return sequence

    def report(step: int, name: int, value: float) -> None:
        sequence, now = next_sequence(), clock()
        body = pack_body(sequence, now, step, thread_ident(), reported, name)
        # Unlike the samples of a step, the value is in the sum: it must belong to this mark.
        total = checksum(pack_value(value), checksum(body))
        pack_report(data, first + sequence % count * size, body, total, now, value)
        if sequence > words[head]:  # noqa: PLR1730
            words[head] = sequence

    return begin, instant, report


def _finisher(words: memoryview, shape: Shape) -> Callable[[int], None]:
    first, count, width = shape.marks_offset // 8, shape.marks, layout.MARK_SIZE // 8
    end_word, clock = layout.MARK_END // 8, time.monotonic_ns

    def end(sequence: int) -> None:
        at = first + sequence % count * width
        if words[at] == sequence:  # else it has been overwritten
            words[at + end_word] = clock()

    return end
