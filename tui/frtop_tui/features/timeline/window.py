"""The window of a timeline: which time each column stands for, where it begins, where keys lead."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final

from frtop_tui.features.timeline.lane import Lane
from frtop_tui.features.timeline.op_columns import PENDING_NS

_STEPS: Final = tuple(
    digits * 10**power for power in range(3, 14) for digits in (1, 2, 5)
)  # fmt: skip
"""Widths of a column in ns, from a microsecond to about 14 hours: they read well."""
NARROWEST: Final = _STEPS[0]
WIDEST: Final = _STEPS[-1]
_RECENT: Final = 32
"""Ops of a rank in view at first: the last steps of most programs."""
_STALE_NS: Final = 10_000_000_000
"""A lane without a report for longer does not hold up the others."""
_NEWEST_STEPS: Final = 2
_BEFORE: Final = 4
"""One part in this many of the window shows what came before a wait."""


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
        """Outside of the window it is less than 0, or `columns` and more."""
        return (at_ns - self.begin_ns) // self.step_ns

    def time(self, column: int) -> int:
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


def first_window(lanes: Iterable[Lane], columns: int) -> TimeWindow | None:
    """The newest steps or ops of the lanes, and all of what is pending; None without any."""
    known = [lane for lane in lanes if len(lane.ops)]
    if not known:
        return None
    until = max(lane.known_until_ns for lane in known)
    newest = max(lane.ops.issued[-1] + lane.clock_ns for lane in known)
    begin = max(map(_recent_ns, known))
    begin -= max(0, newest - begin) // _RECENT
    pending = [ns for ns in map(_pending_ns, known) if ns is not None]
    if pending:
        oldest = min(pending)
        begin = min(begin, oldest - (until - oldest) // _BEFORE)
    else:
        # Ranks may have ended long ago: what they did is in view, and not what came after.
        until = max([min(until, 2 * newest - begin), *map(_end_ns, known)])
    return window_of(min(begin, until - 1000), until, columns)


def newest_known_ns(lanes: Iterable[Lane]) -> int:
    """Up to when all lanes are known that are asked again and again; 0 without any."""
    known = [until for lane in lanes if (until := lane.known_until_ns)]
    newest = max(known, default=0)
    return min((until for until in known if newest - until < _STALE_NS), default=0)


def op_window(begin_ns: int, end_ns: int, columns: int) -> TimeWindow:
    """One op, with some room on both sides."""
    room = max(1000, (end_ns - begin_ns) // 8)
    return window_of(begin_ns - room, end_ns + room, columns)


def next_op(lane: Lane, position: int, by: int, group: int | None) -> int | None:
    """The next op of a group (None: of any), or for negative `by` the one before."""
    groups = lane.ops.group
    here = range(position + 1, len(groups)) if by > 0 else range(position - 1, -1, -1)
    return next((one for one in here if group is None or groups[one] == group), None)


def next_step(lane: Lane, at_ns: int, by: int) -> int | None:
    """When the next step ends after `at_ns`, or the one before it (operator's clock)."""
    ends = list(map(attrgetter("end_ns"), lane.steps))
    at = at_ns - lane.clock_ns
    index = bisect_right(ends, at) if by > 0 else bisect_left(ends, at) - 1
    return ends[index] + lane.clock_ns if 0 <= index < len(ends) else None


def _recent_ns(lane: Lane) -> int:
    """Since when the newest ops or steps of a lane are."""
    if len(lane.steps) > _NEWEST_STEPS:
        return int(lane.steps[-_NEWEST_STEPS - 1].end_ns) + lane.clock_ns
    return lane.ops.issued[-min(_RECENT, len(lane.ops))] + lane.clock_ns


def _pending_ns(lane: Lane) -> int | None:
    """When the oldest op that is pending was issued."""
    ops = lane.ops
    if ops.reach[-1] < PENDING_NS:
        return None
    return ops.issued[bisect_left(ops.reach, PENDING_NS)] + lane.clock_ns


def _end_ns(lane: Lane) -> int:
    last = lane.ops.reach[-1]
    return (last if last < PENDING_NS else lane.ops.issued[-1]) + lane.clock_ns
