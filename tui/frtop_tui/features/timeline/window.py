"""The window of a timeline: which time each column of the screen stands for."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from typing import Final

_STEPS: Final = tuple(
    digits * 10**power for power in range(3, 14) for digits in (1, 2, 5)
)  # fmt: skip
"""Widths of a column in ns, from a microsecond to about 14 hours: they read well."""
NARROWEST: Final = _STEPS[0]
WIDEST: Final = _STEPS[-1]


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """`columns` columns of `step_ns` each, from `begin_ns` on (operator's clock)."""

    begin_ns: int
    step_ns: int
    columns: int

    @property
    def end_ns(self) -> int:
        return self.begin_ns + self.step_ns * self.columns

    def column(self, at_ns: int) -> int:
        """The column of a time; outside of the window less than 0, or `columns` and more."""
        return (at_ns - self.begin_ns) // self.step_ns

    def time(self, column: int) -> int:
        """When a column begins."""
        return self.begin_ns + column * self.step_ns

    def zoomed(self, by: int, column: int) -> TimeWindow:
        """With columns that are `by` steps narrower, or wider; what is at `column` stays there."""
        index = bisect_left(_STEPS, self.step_ns) - by
        step = _STEPS[max(0, min(index, len(_STEPS) - 1))]
        middle = self.time(column) + self.step_ns // 2
        return replace(self, step_ns=step, begin_ns=middle - step // 2 - column * step)

    def moved(self, columns: int) -> TimeWindow:
        return replace(self, begin_ns=self.begin_ns + columns * self.step_ns)

    def ending(self, at_ns: int) -> TimeWindow:
        """The same width, with `at_ns` in the last column."""
        aligned = -(-at_ns // self.step_ns) * self.step_ns
        return replace(self, begin_ns=aligned - self.step_ns * self.columns)

    def wide(self, columns: int) -> TimeWindow:
        """As many columns as the screen has now, up to the same end."""
        begin = self.end_ns - columns * self.step_ns
        return replace(self, begin_ns=begin, columns=columns)

    def showing(self, at_ns: int, margin: int = 0) -> TimeWindow:
        """Moved so far that `at_ns` is inside, `margin` columns from an end where that fits."""
        column = self.column(at_ns)
        margin = min(margin, self.columns // 2 - 1)
        if column < margin:
            return self.moved(column - margin)
        if column >= self.columns - margin:
            return self.moved(column - (self.columns - margin) + 1)
        return self


def window_of(begin_ns: int, end_ns: int, columns: int) -> TimeWindow:
    """The narrowest columns with which all of that time fits, up to its end."""
    columns = max(1, columns)
    needed = max(1, -(-(end_ns - begin_ns) // columns))
    index = min(bisect_right(_STEPS, needed - 1), len(_STEPS) - 1)
    return TimeWindow(end_ns, _STEPS[index], columns).ending(end_ns)
