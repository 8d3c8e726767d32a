"""What is drawn in a lane: intervals by when they began, as three lists of integers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from operator import attrgetter, sub
from typing import Final

from frtop_probe import wire

PENDING_NS: Final = 2**62
"""The end of what has none yet."""


class Intervals:
    """All times are of one clock, in ns. `issued` is in order, and says when each began."""

    def __init__(self, issued: Sequence[int], end: Sequence[int]) -> None:
        self.issued, self.end = issued, end

    @cached_property
    def length(self) -> Sequence[int]:
        """How long each lasts."""
        return list(map(sub, self.end, self.issued))

    @cached_property
    def reach(self) -> Sequence[int]:
        """The last end of any up to that one: whether anything lasts at a time is one search."""
        return list(accumulate(self.end, max))


class Spans(Intervals):
    """Marks of a rank that last, as they are drawn: phases and fetches."""

    def __init__(self, marks: Sequence[wire.Mark]) -> None:
        self.marks = sorted(marks, key=attrgetter("begin_ns"))
        begin = [mark.begin_ns for mark in self.marks]
        super().__init__(begin, [_span_end(mark) for mark in self.marks])


def _span_end(mark: wire.Mark) -> int:
    """When a span is over; one that lasts has no end yet."""
    return max(mark.begin_ns, mark.end_ns) if mark.end_ns else PENDING_NS
