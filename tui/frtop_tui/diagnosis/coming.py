"""When the last one came to an op that all have entered."""

from __future__ import annotations

from collections.abc import Mapping

from frtop_tui.diagnosis.points import Point, answers
from frtop_tui.diagnosis.standing import local_number
from frtop_tui.diagnosis.waiting import patience_ns
from frtop_tui.job.model import Rank


def is_fresh(views: Mapping[int, Rank], point: Point, now_ns: int) -> bool:
    """Whether its last one came but now: that others had waited long for it is over."""
    if point.undated:
        return False
    return now_ns - _entered_ns(views, point) <= patience_ns(point.op, point.group)


def _entered_ns(views: Mapping[int, Rank], point: Point) -> int:
    """Operator's time at which anybody last came to `point`, or did more in its group."""
    last = max(wait.since_ns for wait in point.waits)
    if point.op.p2p:
        return max(last, _answered_ns(views, point))
    group = point.group
    if group is None or point.op.pseudo:
        return last
    for rank in point.members:
        view = views.get(rank)
        if view is None:
            continue
        number = local_number(view, group)
        front = view.group_progress.get(number) if number is not None else None
        if front is not None and front.issued_ns:
            last = max(last, front.issued_ns + view.clock_ns)
    return last


def _answered_ns(views: Mapping[int, Rank], point: Point) -> int:
    """When the peer issued its half, as far as that is pending."""
    view = views.get(point.peer) if point.peer is not None else None
    if view is None:
        return 0
    halves = [op.issued_ns for op in view.pending if answers(op, point)]
    return max(halves) + view.clock_ns if halves else 0
