"""How far ranks are in a group, and how far the members of one group are together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import chain

from frtop_probe import wire
from frtop_tui.job.groups import members_of
from frtop_tui.job.model import RankView


def local_number(view: RankView, group: wire.Group) -> int | None:
    """The rank's own number for a group that another rank knows as `group`."""
    same = view.groups.get(group.id)
    if same is group or (same is not None and _is_same(same, group)):
        return group.id
    return next((n for n, other in view.groups.items() if _is_same(other, group)), None)


def front_number(view: RankView, group: wire.Group) -> int:
    """Number of the last collective the rank has issued in `group`, 0 for none."""
    number = local_number(view, group)
    front = view.fronts.get(number) if number is not None else None
    newest = front.number if front is not None else 0
    # Pending ops may be newer than the front: both are read without a lock.
    for op in view.pending:
        if op.group == number and not op.p2p and op.number > newest:
            newest = op.number
    return newest


def _is_same(one: wire.Group, other: wire.Group) -> bool:
    return (one.name, one.ranks, one.epoch) == (other.name, other.ranks, other.epoch)


class Standing:
    """Of each member the last collective it issued, and those that are pending there.

    Kept up with what changes: `turns` grows with every change.
    """

    def __init__(self, group: wire.Group, ranks: Mapping[int, RankView]) -> None:
        self.members = members_of(group.ranks)
        self.never = [rank for rank in self.members if rank not in ranks]
        self.turns = 0
        self.known: dict[int, int] = {}
        self._group = group
        self._at: defaultdict[int, set[int]] = defaultdict(set)
        self._pending: defaultdict[int, set[int]] = defaultdict(set)
        self._pending_of: dict[int, tuple[int, ...]] = {}
        self._more: set[int] = set()
        for rank in self.members:
            if rank in ranks:
                view = ranks[rank]
                self._enter(view, front_number(view, group), self._numbers(view))

    def put(self, view: RankView) -> None:
        """What is known of a rank now; one that is no member does not count."""
        rank = view.rank
        if rank not in self.known:
            return
        number, pending = front_number(view, self._group), self._numbers(view)
        if (
            self.known[rank] == number
            and self._pending_of.get(rank, ()) == pending
            and (rank in self._more) == (view.pending_more > 0)
        ):
            return
        self.turns += 1
        _leave(self._at, self.known[rank], rank)
        for one in self._pending_of.pop(rank, ()):
            _leave(self._pending, one, rank)
        self._more.discard(rank)
        self._enter(view, number, pending)

    def behind(self, number: int) -> list[int]:
        """Known members that have not issued op `number`."""
        return list(chain.from_iterable(ranks for at, ranks in self._at.items() if at < number))

    def not_through(self, number: int) -> set[int]:
        """Known members that may not have completed op `number`."""
        return {*self.behind(number), *self._pending.get(number, ()), *self._more}

    def _numbers(self, view: RankView) -> tuple[int, ...]:
        """The collectives that are pending there."""
        if not view.pending:
            return ()
        mine = local_number(view, self._group)
        return tuple(op.number for op in view.pending if op.group == mine and not op.p2p)

    def _enter(self, view: RankView, number: int, pending: tuple[int, ...]) -> None:
        rank = view.rank
        self.known[rank] = number
        self._at[number].add(rank)
        if view.pending_more:
            self._more.add(rank)
        if pending:
            self._pending_of[rank] = pending
            for one in pending:
                self._pending[one].add(rank)


def _leave(sets: dict[int, set[int]], number: int, rank: int) -> None:
    ranks = sets.get(number)
    if ranks is not None:
        ranks.discard(rank)
        if not ranks:
            del sets[number]
