"""The window of a timeline: the time of each column, where it starts, where keys move it."""

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
"""Round widths of a column in ns, from a microsecond to about 14 hours."""
_RECENT: Final = 32
"""How many ops of a rank are in view at first: in most programs, its last steps."""
_STALE_NS: Final = 10_000_000_000
"""A lane that has not reported for longer does not hold up the others."""
_NEWEST_STEPS: Final = 2
_BEFORE: Final = 4
"""1 / this of the window shows what came before a wait."""


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
        """Outside of the window it is below 0, or at least `columns`."""
        return (at_ns - self.begin_ns) // self.step_ns

    def time(self, column: int) -> int:
        return self.begin_ns + column * self.step_ns

    def zoomed(self, by: int, column: int) -> TimeWindow:
        """Columns `by` steps narrower, or wider if negative; the time at `column` stays there."""
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
        """The window with this many columns, up to the same end."""
        begin = self.end_ns - columns * self.step_ns
        return replace(self, begin_ns=begin, columns=columns)

    def showing(self, at_ns: int, margin: int = 0) -> TimeWindow:
        """The window moved to include `at_ns`, `margin` columns from the edge if there is room."""
        column = self.column(at_ns)
        margin = min(margin, self.columns // 2 - 1)
        if column < margin:
            return self.moved(column - margin)
        if column >= self.columns - margin:
            return self.moved(column - (self.columns - margin) + 1)
        return self


def window_of(begin_ns: int, end_ns: int, columns: int) -> TimeWindow:
    """The window with the narrowest columns that show all of that time, up to its end."""
    columns = max(1, columns)
    needed = max(1, -(-(end_ns - begin_ns) // columns))
    index = min(bisect_right(_STEPS, needed - 1), len(_STEPS) - 1)
    return TimeWindow(end_ns, _STEPS[index], columns).ending(end_ns)


def first_window(lanes: Iterable[Lane], columns: int) -> TimeWindow | None:
    """Shows the newest steps or ops of the lanes, and all that is pending; None without any."""
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
        # Ranks may have ended long ago: show what they did, not what came after.
        until = max([min(until, 2 * newest - begin), *map(_end_ns, known)])
    return window_of(min(begin, until - 1000), until, columns)


def newest_known_ns(lanes: Iterable[Lane]) -> int:
    """The time up to which all lanes that still report are known; 0 without any."""
    known = [until for lane in lanes if (until := lane.known_until_ns)]
    newest = max(known, default=0)
    return min((until for until in known if newest - until < _STALE_NS), default=0)


def op_window(begin_ns: int, end_ns: int, columns: int) -> TimeWindow:
    """One op, with some room on both sides."""
    room = max(1000, (end_ns - begin_ns) // 8)
    return window_of(begin_ns - room, end_ns + room, columns)


def next_op(lane: Lane, position: int, by: int, group: int | None) -> int | None:
    """The next op of a group (None: of any group), or the previous one if `by` is negative."""
    groups = lane.ops.group
    here = range(position + 1, len(groups)) if by > 0 else range(position - 1, -1, -1)
    return next((one for one in here if group is None or groups[one] == group), None)


def next_step(lane: Lane, at_ns: int, by: int) -> int | None:
    """When the next step after `at_ns` ends, or the previous one (operator's clock)."""
    ends = list(map(attrgetter("end_ns"), lane.steps))
    at = at_ns - lane.clock_ns
    index = bisect_right(ends, at) if by > 0 else bisect_left(ends, at) - 1
    return ends[index] + lane.clock_ns if 0 <= index < len(ends) else None


def _recent_ns(lane: Lane) -> int:
    """When the newest ops or steps of a lane begin."""
    if len(lane.steps) > _NEWEST_STEPS:
        return int(lane.steps[-_NEWEST_STEPS - 1].end_ns) + lane.clock_ns
    return lane.ops.issued[-min(_RECENT, len(lane.ops))] + lane.clock_ns


def _pending_ns(lane: Lane) -> int | None:
    """When the oldest pending op was issued."""
    ops = lane.ops
    if ops.reach[-1] < PENDING_NS:
        return None
    return ops.issued[bisect_left(ops.reach, PENDING_NS)] + lane.clock_ns


def _end_ns(lane: Lane) -> int:
    last = lane.ops.reach[-1]
    return (last if last < PENDING_NS else lane.ops.issued[-1]) + lane.clock_ns
