"""How far the members of one group are, kept up with what changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import chain

from frtop_probe import wire
from frtop_tui.diagnosis.facts import Facts
from frtop_tui.job.groups import identifier, members_of


class Standing:
    """Of each member the last collective it issued, and those that are pending there.

    `turns` grows whenever anything of it changes.
    """

    def __init__(self, group: wire.Group, facts: Mapping[int, Facts]) -> None:
        self.key = identifier(group)
        self.members = members_of(group.ranks)
        self.never = [rank for rank in self.members if rank not in facts]
        self.turns = 0
        self.known: dict[int, int] = {}
        self._at: defaultdict[int, set[int]] = defaultdict(set)
        self._pending: defaultdict[int, set[int]] = defaultdict(set)
        self._pending_of: dict[int, tuple[int, ...]] = {}
        self._more: set[int] = set()
        for rank in self.members:
            if rank in facts:
                self._enter(rank, facts[rank])

    def put(self, rank: int, facts: Facts) -> None:
        """What is known of `rank` now, which was a known member from the beginning."""
        if rank not in self.known:
            return
        if (
            self.known[rank] == facts.reached.get(self.key, 0)
            and self._pending_of.get(rank, ()) == facts.pending.get(self.key, ())
            and (rank in self._more) == facts.more
        ):
            return
        self.turns += 1
        _leave(self._at, self.known[rank], rank)
        for number in self._pending_of.pop(rank, ()):
            _leave(self._pending, number, rank)
        self._more.discard(rank)
        self._enter(rank, facts)

    def behind(self, number: int) -> list[int]:
        """Known members that have not issued op `number`."""
        return list(chain.from_iterable(ranks for at, ranks in self._at.items() if at < number))

    def not_through(self, number: int) -> set[int]:
        """Known members that may not have completed op `number`."""
        return {*self.behind(number), *self._pending.get(number, ()), *self._more}

    def _enter(self, rank: int, facts: Facts) -> None:
        number = self.known[rank] = facts.reached.get(self.key, 0)
        self._at[number].add(rank)
        if facts.more:
            self._more.add(rank)
        if pending := facts.pending.get(self.key):
            self._pending_of[rank] = pending
            for one in pending:
                self._pending[one].add(rank)


def _leave(sets: dict[int, set[int]], number: int, rank: int) -> None:
    ranks = sets.get(number)
    if ranks is not None:
        ranks.discard(rank)
        if not ranks:
            del sets[number]
