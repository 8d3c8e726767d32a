"""How far ranks are in a group, and how far the members of one group are together."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from frtop_probe import wire
from frtop_tui.job.groups import identifier, members_of
from frtop_tui.job.model import Rank


def local_number(view: Rank, group: wire.Group) -> int | None:
    """The rank's own number for a group that another rank knows as `group`."""
    same = view.groups.get(group.id)
    if same is group:
        return group.id
    key = identifier(group)
    if same is not None and identifier(same) == key:
        return group.id
    return next((n for n, other in view.groups.items() if identifier(other) == key), None)


def front_number(view: Rank, group: wire.Group) -> int:
    """Number of the last collective the rank has issued in `group`, 0 for none."""
    number = local_number(view, group)
    front = view.group_progress.get(number) if number is not None else None
    newest = front.number if front is not None else 0
    # Pending ops may be newer than the front: both are read without a lock.
    for op in view.pending:
        if op.group == number and not op.p2p and op.number > newest:
            newest = op.number
    return newest


class GroupFrontier:
    """Of each member the last collective it issued; when asked for, also what is pending.

    Kept up with what changes: `turns` grows with every change.
    """

    def __init__(self, group: wire.Group, ranks: Mapping[int, Rank]) -> None:
        self.members = members_of(group.ranks)
        self.never = [rank for rank in self.members if rank not in ranks]
        self.version = 0
        self.known: dict[int, int] = {}
        self._group = group
        self._at: dict[int, set[int]] = {}
        self._open: _Open | None = None
        for rank in self.members:
            if rank in ranks:
                number = self.known[rank] = front_number(ranks[rank], group)
                self._at.setdefault(number, set()).add(rank)
        if not group.exact:
            self._open = self._opened(ranks)  # there who is absent is told from it

    def put(self, view: Rank) -> None:
        """What is known of a rank now; one that is no member does not count."""
        rank = view.rank
        if rank not in self.known:
            return
        number = front_number(view, self._group)
        if number != self.known[rank]:
            self.version += 1
            _leave(self._at, self.known[rank], rank)
            self.known[rank] = number
            self._at.setdefault(number, set()).add(rank)
        if self._open is not None:
            self.version += self._open.put(view, self._group)

    def behind(self, number: int) -> list[int]:
        """Known members that have not issued op `number`."""
        return list(chain.from_iterable(ranks for at, ranks in self._at.items() if at < number))

    def not_through(self, number: int, ranks: Mapping[int, Rank]) -> set[int]:
        """Known members that may not have completed op `number`; `ranks` as they are now."""
        if self._open is None:
            self._open = self._opened(ranks)
        return {*self.behind(number), *self._open.at.get(number, ()), *self._open.more}

    def _opened(self, ranks: Mapping[int, Rank]) -> _Open:
        found = _Open()
        for rank in self.known:
            found.put(ranks[rank], self._group)
        return found


class _Open:
    """The collectives of a group that are pending, and whose that is known only in part."""

    def __init__(self) -> None:
        self.at: dict[int, set[int]] = {}
        self.more: set[int] = set()
        self._numbers: dict[int, tuple[int, ...]] = {}

    def put(self, view: Rank, group: wire.Group) -> bool:
        """Whether that changes anything."""
        rank, numbers, more = view.rank, _pending(view, group), view.pending_more > 0
        before = self._numbers.get(rank, ())
        if numbers == before and more == (rank in self.more):
            return False
        for number in before:
            _leave(self.at, number, rank)
        for number in numbers:
            self.at.setdefault(number, set()).add(rank)
        self._numbers[rank] = numbers
        (self.more.add if more else self.more.discard)(rank)
        return True


def _pending(view: Rank, group: wire.Group) -> tuple[int, ...]:
    if not view.pending:
        return ()
    mine = local_number(view, group)
    return tuple(op.number for op in view.pending if op.group == mine and not op.p2p)


def _leave(sets: dict[int, set[int]], number: int, rank: int) -> None:
    ranks = sets.get(number)
    if ranks is not None:
        ranks.discard(rank)
        if not ranks:
            del sets[number]
