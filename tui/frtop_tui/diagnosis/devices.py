"""How far devices are, which is not how far ranks are: what was issued may wait in a queue."""

from __future__ import annotations

from collections.abc import Mapping

from frtop_tui.diagnosis.points import Point, front_number, local_number
from frtop_tui.job.model import RankView


def behind(views: Mapping[int, RankView], point: Point) -> tuple[tuple[int, ...], int]:
    """Members whose devices are still at an op that those of most have completed; and which.

    Only of dumps, where all have issued the op of `point`; else nobody.
    """
    group = point.group
    if group is None or point.number is None:
        return (), 0
    oldest: dict[int, int] = {}
    for rank in point.members:
        view = views.get(rank)
        if view is None or not view.dumped or front_number(view, group) < point.number:
            return (), 0
        mine = local_number(view, group)
        numbers = [op.number for op in view.pending if op.group == mine and not op.p2p]
        oldest[rank] = min(numbers, default=front_number(view, group) + 1)
    first = min(oldest.values(), default=0)
    last = tuple(rank for rank, number in oldest.items() if number == first)
    return (last, first) if 2 * len(last) < len(oldest) else ((), 0)
