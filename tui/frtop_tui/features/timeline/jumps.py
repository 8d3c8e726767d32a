"""Where a timeline begins, and to where the cursor jumps."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from operator import attrgetter
from typing import Final

from frtop_tui.features.timeline.intervals import PENDING_NS
from frtop_tui.features.timeline.lane import Lane
from frtop_tui.features.timeline.window import TimeWindow, window_of

_RECENT: Final = 32
"""Ops of a rank in view at first: the last steps of most programs."""
_STALE_NS: Final = 10_000_000_000
"""A lane without a report for longer does not hold up the others."""
_STEPS: Final = 2
_BEFORE: Final = 4
"""Of a wait, what was before it is in view for one part of so many."""


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
    if len(lane.steps) > _STEPS:
        return int(lane.steps[-_STEPS - 1].end_ns) + lane.clock_ns
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
