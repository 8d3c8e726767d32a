"""Groups across ranks: a group is its name, members and epoch, never its number alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from frtop_probe import wire
from frtop_probe.ring.fold import unfold
from frtop_tui.job.model import GroupKey, GroupView, RankView

Identifier = tuple[str, str, int]
"""Name, folded members, epoch: cheaper to hash ten thousand times than a `GroupKey`."""


def identifier(group: wire.Group) -> Identifier:
    return (group.name, group.ranks, group.epoch)


@lru_cache(maxsize=16384)
def members_of(ranks: str) -> tuple[int, ...]:
    """The members that a group's folded text names; none if it is no such text."""
    try:
        return unfold(ranks)
    except ValueError:
        return ()


@dataclass(slots=True)
class _Gathered:
    group: wire.Group
    number: int = 0
    last: wire.Op | None = None
    exact: bool = True
    issued_ns: int = 0
    numbers: list[tuple[int, int]] = field(default_factory=list)


def group_views(ranks: Iterable[RankView], now_ns: int) -> tuple[GroupView, ...]:
    """One view per group that any of `ranks` knows, the largest and oldest first."""
    found: dict[Identifier, _Gathered] = {}
    for view in ranks:
        fronts = view.fronts
        for number, group in view.groups.items():
            key = (group.name, group.ranks, group.epoch)
            gathered = found.get(key)
            if gathered is None:
                gathered = found[key] = _Gathered(group)
            if not group.exact:
                gathered.exact = False
            front = fronts.get(number)
            if front is None:
                gathered.numbers.append((view.rank, 0))
                continue
            gathered.numbers.append((view.rank, front.number))
            gathered.issued_ns = max(gathered.issued_ns, front.issued_ns + view.clock_ns)
            if front.number > gathered.number:
                gathered.number, gathered.last = front.number, None
            last = front.last
            if (
                gathered.last is None
                and last is not None
                and last.number == gathered.number
                and not last.p2p
            ):
                gathered.last = last
    views = [_view(gathered, now_ns) for gathered in found.values()]
    views.sort(key=lambda view: (-len(view.members), len(view.key.name), view.key.name))
    return tuple(views)


def _view(gathered: _Gathered, now_ns: int) -> GroupView:
    group = gathered.group
    late: tuple[int, ...] = ()
    if gathered.exact:
        late = tuple(sorted(r for r, number in gathered.numbers if number < gathered.number))
    idle = (now_ns - gathered.issued_ns) / 1e9 if gathered.issued_ns else 0.0
    return GroupView(
        key=GroupKey(group.name, group.ranks, group.epoch),
        description=group.description,
        backend=group.backend,
        members=members_of(group.ranks),
        number=gathered.number,
        last=gathered.last,
        late=late,
        exact=gathered.exact,
        idle_s=max(0.0, idle),
    )
