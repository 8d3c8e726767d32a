"""Groups across ranks, identified by name, members and epoch, not by their number."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import chain

from frtop_probe import wire
from frtop_probe.ring.rank_ranges import unfold
from frtop_tui.job.model import GroupView, Rank
from frtop_tui.job.naming import GroupKey

Identifier = tuple[str, str, int]
"""Name, folded members, epoch: cheaper to hash than a `GroupKey`."""


def identifier(group: wire.Group | GroupKey) -> Identifier:
    """One identifier for a group as a rank knows it and for its key across ranks."""
    return (group.name, group.ranks, group.epoch)


@lru_cache(maxsize=65_536)
def members_of(ranks: str) -> tuple[int, ...]:
    """Unfolds the members of a group; empty if the text is invalid."""
    try:
        return unfold(ranks)
    except ValueError:
        return ()


def group_views(ranks: Iterable[Rank]) -> tuple[GroupView, ...]:
    """One view per group of `ranks`, the largest and oldest first."""
    groups = Groups()
    for view in ranks:
        groups.put(None, view)
    return groups.views()


class Groups:
    """Groups across ranks, kept up to date: only groups of ranks that changed get new views."""

    def __init__(self) -> None:
        self._groups_by_key: dict[Identifier, _Group] = {}
        self._changed: set[Identifier] = set()
        self._positions: dict[Identifier, int] = {}
        self._views: list[GroupView] = []

    def put(self, old: Rank | None, new: Rank | None) -> None:
        same = old is not None and new is not None and old.groups is new.groups
        if old is not None and not same:
            here = set(map(identifier, _shown(new).values())) if new is not None else set()
            for key in set(map(identifier, _shown(old).values())) - here:
                self._drop(key, old.rank)
        if new is None or (
            old is not None
            and same
            and old.group_progress is new.group_progress
            and old.clock_ns == new.clock_ns
        ):
            return
        for number, group in _shown(new).items():
            key = identifier(group)
            gathered = self._groups_by_key.get(key)
            if gathered is None:
                gathered = self._groups_by_key[key] = _Group()
            if gathered.put(new.rank, group, new.group_progress.get(number), new.clock_ns):
                self._changed.add(key)

    def views(self) -> tuple[GroupView, ...]:
        """One view per group, the largest and oldest first; the same object until it changes."""
        if self._positions.keys() != self._groups_by_key.keys():
            ordered = sorted(self._groups_by_key, key=_order)
            known = {key: self._views[index] for key, index in self._positions.items()}
            self._views = [known.get(key) or self._groups_by_key[key].view() for key in ordered]
            self._positions = {key: index for index, key in enumerate(ordered)}
        for key in self._changed & self._positions.keys():
            self._views[self._positions[key]] = self._groups_by_key[key].view()
        self._changed.clear()
        return tuple(self._views)

    def _drop(self, key: Identifier, rank: int) -> None:
        group = self._groups_by_key[key]
        group.drop(rank)
        self._changed.add(key)
        if not group.progress:
            del self._groups_by_key[key]


def _shown(rank: Rank) -> Mapping[int, wire.Group]:
    """The groups of a rank, except those that it has destroyed."""
    if not any(group.gone for group in rank.groups.values()):
        return rank.groups
    return {number: group for number, group in rank.groups.items() if not group.gone}


def _order(key: Identifier) -> tuple[object, ...]:
    name, ranks, epoch = key
    members = members_of(ranks)
    return (-len(members), len(name), name, members[:1], epoch, ranks)


class _Group:
    """One group: each rank's number, when it issued that op, and the op itself."""

    def __init__(self) -> None:
        self.progress: dict[int, tuple[int, int, wire.Op | None]] = {}
        self._groups: dict[int, wire.Group] = {}
        self._at: defaultdict[int, set[int]] = defaultdict(set)  # ranks at a number
        self._with_op: defaultdict[int, set[int]] = defaultdict(set)  # ranks that sent the op
        self._inexact: set[int] = set()
        self._first: int | None = None
        self._key: GroupKey | None = None
        self._issued_ns: int | None = 0

    def put(
        self, rank: int, group: wire.Group, last: wire.GroupProgress | None, clock_ns: int
    ) -> bool:
        """Sets the progress of a rank; returns whether that changed anything."""
        progress: tuple[int, int, wire.Op | None] = (0, 0, None)
        if last is not None:
            progress = (last.number, last.issued_ns + clock_ns, last.last)
        known, newest_ns = self.progress.get(rank), self._issued_ns
        if known is not None:
            same = self._groups[rank] is group or self._groups[rank] == group
            if same and known == progress:
                return False
            if same and self._first is not None:
                self._move(rank, known, progress)
                return True
            self.drop(rank)
        number, issued_ns, op = self.progress[rank] = progress
        self._groups[rank] = group
        self._at[number].add(rank)
        if op is not None and not op.p2p:
            self._with_op[op.number].add(rank)
        if not group.exact:
            self._inexact.add(rank)
        if self._first is not None and rank < self._first:
            self._first = rank
        if newest_ns is not None and issued_ns >= newest_ns:
            self._issued_ns = issued_ns
        return True

    def _move(
        self,
        rank: int,
        known: tuple[int, int, wire.Op | None],
        progress: tuple[int, int, wire.Op | None],
    ) -> None:
        """Moves a rank whose group is the same: by far the most frequent change."""
        self.progress[rank] = progress
        before, was_ns, old = known
        number, issued_ns, op = progress
        if number != before:
            _discard(self._at, before, rank)
            self._at[number].add(rank)
        if op is not old:
            if old is not None and not old.p2p:
                _discard(self._with_op, old.number, rank)
            if op is not None and not op.p2p:
                self._with_op[op.number].add(rank)
        newest_ns = self._issued_ns
        if newest_ns is not None:
            if issued_ns >= newest_ns:
                self._issued_ns = issued_ns
            elif was_ns == newest_ns:
                self._issued_ns = None

    def drop(self, rank: int) -> None:
        progress = self.progress.pop(rank, None)
        if progress is None:
            return
        number, issued_ns, op = progress
        _discard(self._at, number, rank)
        if op is not None and not op.p2p:
            _discard(self._with_op, op.number, rank)
        self._inexact.discard(rank)
        del self._groups[rank]
        if rank == self._first:
            self._first = None
        if issued_ns == self._issued_ns:
            self._issued_ns = None

    def view(self) -> GroupView:
        if self._first is None:
            self._first = min(self.progress)
        if self._issued_ns is None:
            self._issued_ns = max(0, *(issued_ns for _, issued_ns, _ in self.progress.values()))
        group = self._groups[self._first]
        if self._key is None:
            self._key = GroupKey(group.name, group.ranks, group.epoch)
        furthest = max(0, *self._at)
        late: tuple[int, ...] = ()
        if not self._inexact:
            late_at = (ranks for number, ranks in self._at.items() if number < furthest)
            late = tuple(sorted(chain.from_iterable(late_at)))
        with_op = self._with_op.get(furthest)
        return GroupView(
            key=self._key,
            description=group.description,
            backend=group.backend,
            members=members_of(group.ranks),
            number=furthest,
            last=self.progress[min(with_op)][2] if with_op else None,
            late=late,
            exact=not self._inexact,
            issued_ns=self._issued_ns,
        )


def _discard(sets: dict[int, set[int]], number: int, rank: int) -> None:
    sets[number].discard(rank)
    if not sets[number]:
        del sets[number]
