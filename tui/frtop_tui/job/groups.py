"""Groups across ranks: a group is its name, members and epoch, never its number alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain

from frtop_probe import wire
from frtop_probe.ring.rank_ranges import unfold
from frtop_tui.job.model import GroupKey, GroupView, Rank

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


def group_views(ranks: Iterable[Rank]) -> tuple[GroupView, ...]:
    """One view per group that any of `ranks` knows, the largest and oldest first."""
    groups = Groups()
    for view in ranks:
        groups.put(None, view)
    return groups.views()


class Groups:
    """Groups across ranks that are kept: only those of ranks that moved are viewed anew."""

    def __init__(self) -> None:
        self._gathered: dict[Identifier, _Gathered] = {}
        self._changed: set[Identifier] = set()
        self._places: dict[Identifier, int] = {}
        self._views: list[GroupView] = []

    def put(self, old: Rank | None, new: Rank | None) -> None:
        """Takes `new` in the place of `old`, the last view of the same rank."""
        same = old is not None and new is not None and old.groups is new.groups
        if old is not None and not same:
            here = set(map(identifier, new.groups.values())) if new is not None else set()
            for key in set(map(identifier, old.groups.values())) - here:
                self._drop(key, old.rank)
        if new is None or (
            old is not None
            and same
            and old.group_progress is new.group_progress
            and old.clock_ns == new.clock_ns
        ):
            return
        for number, group in new.groups.items():
            key = (group.name, group.ranks, group.epoch)
            gathered = self._gathered.get(key)
            if gathered is None:
                gathered = self._gathered[key] = _Gathered()
            if gathered.put(new.rank, group, new.group_progress.get(number), new.clock_ns):
                self._changed.add(key)

    def views(self) -> tuple[GroupView, ...]:
        """One view per group, the largest and oldest first; the same one until it changes."""
        if self._places.keys() != self._gathered.keys():
            ordered = sorted(self._gathered, key=_order)
            known = {key: self._views[place] for key, place in self._places.items()}
            self._views = [known.get(key) or self._gathered[key].view() for key in ordered]
            self._places = {key: place for place, key in enumerate(ordered)}
        for key in self._changed & self._places.keys():
            self._views[self._places[key]] = self._gathered[key].view()
        self._changed.clear()
        return tuple(self._views)

    def _drop(self, key: Identifier, rank: int) -> None:
        gathered = self._gathered[key]
        gathered.drop(rank)
        self._changed.add(key)
        if not gathered.parts:
            del self._gathered[key]


def _order(key: Identifier) -> tuple[object, ...]:
    name, ranks, epoch = key
    members = members_of(ranks)
    return (-len(members), len(name), name, members[:1], epoch, ranks)


class _Gathered:
    """What the ranks that know a group tell of it: each its number, when, and the op."""

    def __init__(self) -> None:
        self.parts: dict[int, tuple[int, int, wire.Op | None]] = {}
        self._groups: dict[int, wire.Group] = {}
        self._at: defaultdict[int, set[int]] = defaultdict(set)  # who is at a number
        self._told: defaultdict[int, set[int]] = defaultdict(set)  # who told the op of a number
        self._inexact: set[int] = set()
        self._first: int | None = None
        self._key: GroupKey | None = None
        self._issued_ns: int | None = 0

    def put(
        self, rank: int, group: wire.Group, front: wire.GroupProgress | None, clock_ns: int
    ) -> bool:
        """Whether that changes anything."""
        part: tuple[int, int, wire.Op | None] = (0, 0, None)
        if front is not None:
            part = (front.number, front.issued_ns + clock_ns, front.last)
        known, newest_ns = self.parts.get(rank), self._issued_ns
        if known is not None:
            if known == part and self._groups[rank] == group:
                return False
            self.drop(rank)
        number, issued_ns, last = self.parts[rank] = part
        self._groups[rank] = group
        self._at[number].add(rank)
        if last is not None and not last.p2p:
            self._told[last.number].add(rank)
        if not group.exact:
            self._inexact.add(rank)
        if self._first is not None and rank < self._first:
            self._first = rank
        if newest_ns is not None and issued_ns >= newest_ns:
            self._issued_ns = issued_ns
        return True

    def drop(self, rank: int) -> None:
        part = self.parts.pop(rank, None)
        if part is None:
            return
        number, issued_ns, last = part
        _leave(self._at, number, rank)
        if last is not None and not last.p2p:
            _leave(self._told, last.number, rank)
        self._inexact.discard(rank)
        del self._groups[rank]
        if rank == self._first:
            self._first = None
        if issued_ns == self._issued_ns:
            self._issued_ns = None

    def view(self) -> GroupView:
        if self._first is None:
            self._first = min(self.parts)
        if self._issued_ns is None:
            self._issued_ns = max(0, *(part[1] for part in self.parts.values()))
        group = self._groups[self._first]
        if self._key is None:
            self._key = GroupKey(group.name, group.ranks, group.epoch)
        furthest = max(0, *self._at)
        late: tuple[int, ...] = ()
        if not self._inexact:
            behind = (ranks for number, ranks in self._at.items() if number < furthest)
            late = tuple(sorted(chain.from_iterable(behind)))
        tellers = self._told.get(furthest)
        return GroupView(
            key=self._key,
            description=group.description,
            backend=group.backend,
            members=members_of(group.ranks),
            number=furthest,
            last=self.parts[min(tellers)][2] if tellers else None,
            late=late,
            exact=not self._inexact,
            issued_ns=self._issued_ns,
        )


def _leave(sets: dict[int, set[int]], number: int, rank: int) -> None:
    sets[number].discard(rank)
    if not sets[number]:
        del sets[number]
