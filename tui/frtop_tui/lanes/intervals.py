"""What is drawn in a lane: intervals by when they began, as three lists of integers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from operator import sub


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
