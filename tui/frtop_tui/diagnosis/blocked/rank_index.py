"""All ranks of a job, indexed: who is blocked in what, who died, how far each group is.

The index is kept from frame to frame. A rank that is the same object has the same facts, so an
update visits only ranks that differ. A new index of the same ranks has the same content
(`tests/diagnosis/test_incremental.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import compress
from operator import attrgetter, is_, is_not
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.blocked.blocked_op import Wait, wait_of
from frtop_tui.diagnosis.blocked.group_frontier import GroupFrontier
from frtop_tui.diagnosis.blocked.stale_pending import (
    CompletionByMembers,
    is_message_over,
    is_wait_doubtful,
    still_pending,
)
from frtop_tui.diagnosis.evidence.death import Death, death_of
from frtop_tui.diagnosis.evidence.staleness import is_stale
from frtop_tui.job.groups import Identifier, identifier
from frtop_tui.job.model import Rank, RankState


class RankIndex:
    """The ranks of the last update."""

    def __init__(self) -> None:
        self.ranks: Mapping[int, Rank] = {}  # as the frame has them
        self.corrected: Mapping[int, Rank] = {}  # without pending ops that are over
        self.waits: dict[int, Wait] = {}  # which op each blocked rank is blocked in
        self.states: defaultdict[RankState, set[int]] = defaultdict(set)
        self.dead: dict[int, Death] = {}
        self.beside: set[int] = set()  # ranks that may wait for transports nobody observes
        self.partial: set[int] = set()  # ranks of which not every op is known
        self.stale: set[int] = set()  # ranks that could not be read for a while
        self.deaths_version = 0  # grows whenever the order of deaths may differ
        # What differs from the update before:
        self.seen: list[int] = []  # ranks that are another object
        self.replaced: list[tuple[Rank | None, Rank | None]] = []  # whose facts differ: old, new
        self.moved: set[int] = set()  # ranks of which a fact differs, whichever rank told it
        self.rewaited: list[int] = []  # ranks that are blocked in another op
        self.recorrected = False  # other pending ops are over
        self.renumbered = True  # ranks came or went
        self._frontiers: dict[Identifier, GroupFrontier] = {}
        self._doubtful: dict[int, Wait] = {}  # waits as their ranks tell them
        self._corrections: dict[int, Rank] = {}

    def update(self, ranks: Mapping[int, Rank]) -> None:
        """Brings everything to `ranks`."""
        before, self.ranks = self.ranks, ranks
        self.renumbered = len(before) != len(ranks) or not all(map(is_, before, ranks))
        self.replaced, self.moved, self.rewaited, self.recorrected = [], set(), [], False
        if self.renumbered:
            self._frontiers.clear()
            self.seen = [rank for rank, view in ranks.items() if before.get(rank) is not view]
        else:
            self.seen = [*compress(ranks, map(is_not, ranks.values(), before.values()))]
        waits: dict[int, Wait | None] = {}
        for rank in before.keys() - ranks.keys() if self.renumbered else ():
            waits[rank] = self._put(before[rank], None)
        for rank in self.seen:
            old, new = before.get(rank), ranks[rank]
            if old is None or not _only_counters_differ(old, new):
                waits[rank] = self._put(old, new)
        if waits:
            self.moved.update(waits)
            waits.update(self._settle_doubts())
            self._settle(waits)
        else:  # only counters differ
            for rank in self._corrections.keys() & set(self.seen):
                pending = self._corrections[rank].pending
                self._corrections[rank] = replace(ranks[rank], pending=pending)
        self.corrected = {**ranks, **self._corrections} if self._corrections else ranks

    def frontier(self, group: wire.Group) -> GroupFrontier:
        """How far the members of a group are; updated in every frame once asked for."""
        key = identifier(group)
        known = self._frontiers.get(key)
        if known is None:
            known = self._frontiers[key] = GroupFrontier(group, self.ranks)
        return known

    def _put(self, old: Rank | None, new: Rank | None) -> Wait | None:
        """Takes a new view in the place of the old one; gives the wait that it tells of."""
        died = bool(self.dead)
        if old is not None:
            self.states[old.state].discard(old.rank)
            self._doubtful.pop(old.rank, None)
            self.dead.pop(old.rank, None)
            self.beside.discard(old.rank)
            self.partial.discard(old.rank)
            self.stale.discard(old.rank)
        self.replaced.append((old, new))
        wait = None
        if new is not None:
            self.states[new.state].add(new.rank)
            if not new.evidence.has_transports:
                self.beside.add(new.rank)
            if not new.evidence.has_every_op:
                self.partial.add(new.rank)
            if is_stale(new):
                self.stale.add(new.rank)
            wait = wait_of(new)
            if wait is not None and is_wait_doubtful(new, wait):
                self._doubtful[new.rank] = wait
            if (death := death_of(new)) is not None:
                self.dead[new.rank] = death
            self._advance(old, new)
        # As long as somebody has died, what the living did counts as well.
        self.deaths_version += bool(self.dead) or died
        return wait

    def _advance(self, old: Rank | None, new: Rank) -> None:
        if not self._frontiers:
            return
        groups = [*new.groups.values(), *(old.groups.values() if old is not None else ())]
        for key in set(map(identifier, groups)):
            if key in self._frontiers:
                self._frontiers[key].update(new)

    def _settle(self, waits: Mapping[int, Wait | None]) -> None:
        """Updates `waits`; doubtful ones are first checked against the peer's wait."""
        for rank, found in waits.items():
            wait = found
            if wait is not None and wait.peer is not None and rank in self._doubtful:
                theirs = waits.get(wait.peer, self.waits.get(wait.peer))
                wait = None if is_message_over(wait, self.ranks, theirs) else wait
            if wait == self.waits.get(rank):
                continue
            self.rewaited.append(rank)
            if wait is None:
                del self.waits[rank]
            else:
                self.waits[rank] = wait
        self.moved.update(self.rewaited)

    def _settle_doubts(self) -> dict[int, Wait | None]:
        """The waits of those in doubt; what is over is taken out of their pending ops."""
        before, self._corrections = self._corrections, {}
        waits: dict[int, Wait | None] = {}
        others = CompletionByMembers(self.ranks, self.frontier)
        for rank, wait in self._doubtful.items():
            view = self.ranks[rank]
            left = still_pending(view, others)
            waits[rank] = wait
            if len(left) < len(view.pending):
                self._corrections[rank] = replace(view, pending=left)
                waits[rank] = wait_of(self._corrections[rank])
        for rank in before.keys() | self._corrections.keys():
            was, now = before.get(rank), self._corrections.get(rank)
            if was is None or now is None or was.pending != now.pending:
                self.moved.add(rank)
                self.recorrected = True
        return waits


_COUNTERS: Final = frozenset({
    "reported_ns", "heartbeat_ns", "ops", "cpu_ns", "io_bytes", "rss", "threads", "children",
})  # fmt: skip
"""These change in every update of every rank, so nothing kept between frames may depend on
them. A heartbeat that stops changes the rank's state."""


def _only_counters_differ(one: Rank, other: Rank) -> bool:
    """Whether at most counters differ; may be False where that is so."""
    return (
        all(map(is_, _rank_facts(one), _rank_facts(other)))
        and _equal(one.status, other.status, _status_facts)
        and _equal(one.process, other.process, _process_facts)
    )


def _equal(one: object, other: object, facts: attrgetter[tuple[object, ...]]) -> bool:
    if one is other or one is None or other is None:
        return one is other
    return facts(one) == facts(other)


def _facts_of(kind: type[Struct]) -> attrgetter[tuple[object, ...]]:
    omitted = _COUNTERS | {"status", "process"}  # compared by themselves
    return attrgetter(*(name for name in kind.__struct_fields__ if name not in omitted))


_rank_facts: Final = _facts_of(Rank)
_status_facts: Final = _facts_of(wire.RankStatus)
_process_facts: Final = _facts_of(wire.Process)
