"""How far the members of a group are: which collectives each has issued and completed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

from frtop_probe import wire
from frtop_tui.job.groups import identifier, members_of
from frtop_tui.job.model import Rank


def local_group_id(view: Rank, group: wire.Group) -> int | None:
    """The rank's own id of a group that another rank knows as `group`; None if it has none."""
    same = view.groups.get(group.id)
    if same is group:
        return group.id
    key = identifier(group)
    if same is not None and identifier(same) == key:
        return group.id
    return next((n for n, other in view.groups.items() if identifier(other) == key), None)


def last_issued_number(view: Rank, group: wire.Group) -> int:
    """Number of the last collective that the rank has issued in `group`, 0 for none."""
    group_id = local_group_id(view, group)
    progress = view.group_progress.get(group_id) if group_id is not None else None
    newest = progress.number if progress is not None else 0
    # The agent reads both without a lock: a pending op may be newer.
    for op in view.pending:
        if op.group == group_id and not op.p2p and op.number > newest:
            newest = op.number
    return newest


class GroupFrontier:
    """The last collective that each member of a group has issued, and pending ones."""

    def __init__(self, group: wire.Group, ranks: Mapping[int, Rank]) -> None:
        self.members = members_of(group.ranks)
        self.never_observed = [rank for rank in self.members if rank not in ranks]
        self.version = 0  # grows with every change
        self.issued: dict[int, int] = {}  # the last number of each observed member
        self._group = group
        self._ranks_at: dict[int, set[int]] = {}  # by number of the last collective
        self._pending: _PendingCollectives | None = None
        for rank in self.members:
            if rank in ranks:
                number = self.issued[rank] = last_issued_number(ranks[rank], group)
                self._ranks_at.setdefault(number, set()).add(rank)
        if not group.exact:
            # Numbers cannot be compared, so pending ops show which members are absent.
            self._pending = _PendingCollectives(group, [ranks[rank] for rank in self.issued])

    def update(self, view: Rank) -> None:
        """Takes the new view of a rank, which need not be a member."""
        rank = view.rank
        if rank not in self.issued:
            return
        number = last_issued_number(view, self._group)
        if number != self.issued[rank]:
            self.version += 1
            _remove(self._ranks_at, self.issued[rank], rank)
            self.issued[rank] = number
            self._ranks_at.setdefault(number, set()).add(rank)
        if self._pending is not None:
            self.version += self._pending.update(view)

    def not_issued(self, number: int) -> list[int]:
        """Observed members that have not issued op `number`."""
        ranks = (ranks for last, ranks in self._ranks_at.items() if last < number)
        return list(chain.from_iterable(ranks))

    def not_completed(self, number: int, ranks: Mapping[int, Rank]) -> set[int]:
        """Observed members that may not have completed op `number`, by the present `ranks`."""
        if self._pending is None:
            views = [ranks[rank] for rank in self.issued]
            self._pending = _PendingCollectives(self._group, views)
        pending = self._pending
        return {*self.not_issued(number), *pending.ranks_at.get(number, ()), *pending.truncated}


class _PendingCollectives:
    """Which ranks have which collectives of a group pending."""

    def __init__(self, group: wire.Group, views: Iterable[Rank]) -> None:
        self.ranks_at: dict[int, set[int]] = {}  # by number
        self.truncated: set[int] = set()  # not all of their pending ops are known
        self._group = group
        self._numbers: dict[int, tuple[int, ...]] = {}
        for view in views:
            self.update(view)

    def update(self, view: Rank) -> bool:
        """Takes the new view of a rank; returns whether anything changed."""
        rank, truncated = view.rank, view.pending_more > 0
        numbers = pending_numbers(view, self._group)
        before = self._numbers.get(rank, ())
        if numbers == before and truncated == (rank in self.truncated):
            return False
        for number in before:
            _remove(self.ranks_at, number, rank)
        for number in numbers:
            self.ranks_at.setdefault(number, set()).add(rank)
        self._numbers[rank] = numbers
        (self.truncated.add if truncated else self.truncated.discard)(rank)
        return True


def pending_numbers(view: Rank, group: wire.Group) -> tuple[int, ...]:
    """Numbers of the collectives of `group` that the rank has pending."""
    if not view.pending:
        return ()
    group_id = local_group_id(view, group)
    return tuple(op.number for op in view.pending if op.group == group_id and not op.p2p)


def _remove(sets: dict[int, set[int]], key: int, rank: int) -> None:
    ranks = sets.get(key)
    if ranks is not None:
        ranks.discard(rank)
        if not ranks:
            del sets[key]
