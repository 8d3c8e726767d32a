"""What is known of all ranks, kept from frame to frame: waits, deaths, how far groups are.

A view that is the same object tells the same. So a turn looks for the views that differ, and
puts what these tell in the place of what the old ones told, everywhere. What it comes to is
what a new survey would come to that is given the same ranks; tests hold it to that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import compress
from operator import is_, is_not

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
from frtop_tui.diagnosis.detectors.deaths.roots import Death, Deaths, death_of, sorted_deaths
from frtop_tui.diagnosis.detectors.mismatch.live_ops import LiveOps
from frtop_tui.diagnosis.evidence.rank_change import only_counters_differ
from frtop_tui.job.groups import Identifier, identifier
from frtop_tui.job.model import Rank, RankState


class RankIndex:
    """One job's ranks as of the last turn.

    `ranks` are those of the frame, `views` the same without pending ops that are over.
    Of the last turn is told: `seen`, whose views were other ones; `moved`, of whom anything
    else is known than before; `rewaited`, who is blocked in something else; `recorrected`,
    that other ops are taken to be over; `whole`, that they are not the same ranks any more.
    """

    def __init__(self) -> None:
        self.ranks: Mapping[int, Rank] = {}
        self.views: Mapping[int, Rank] = {}
        self.waits: dict[int, Wait] = {}
        self.postures: defaultdict[RankState, set[int]] = defaultdict(set)
        self.told = LiveOps()
        self.seen: list[int] = []
        self.moved: set[int] = set()
        self.rewaited: list[int] = []
        self.recorrected = False
        self.whole = True
        self._standings: dict[Identifier, GroupFrontier] = {}
        self._doubtful: dict[int, Wait] = {}  # waits as their ranks tell them
        self._corrected: dict[int, Rank] = {}
        self._dead: dict[int, Death] = {}
        self._deaths: Deaths | None = Deaths()

    def update(self, ranks: Mapping[int, Rank]) -> None:
        """Brings everything to `ranks`."""
        before, self.ranks = self.ranks, ranks
        self.whole = len(before) != len(ranks) or not all(map(is_, before, ranks))
        self.moved, self.rewaited, self.recorrected = set(), [], False
        if self.whole:
            self._standings.clear()
            self.seen = [rank for rank, view in ranks.items() if before.get(rank) is not view]
        else:
            self.seen = [*compress(ranks, map(is_not, ranks.values(), before.values()))]
        waits: dict[int, Wait | None] = {}
        for rank in before.keys() - ranks.keys() if self.whole else ():
            waits[rank] = self._put(before[rank], None)
        for rank in self.seen:
            old, new = before.get(rank), ranks[rank]
            if old is None or not only_counters_differ(old, new):
                waits[rank] = self._put(old, new)
        if waits:
            self.moved.update(waits)
            waits.update(self._settle_doubts())
            self._settle(waits)
        else:
            self._renew(self._corrected.keys() & set(self.seen))
        self.views = {**ranks, **self._corrected} if self._corrected else ranks

    def frontier(self, group: wire.Group) -> GroupFrontier:
        """How far the members of a group are; kept up from the first question on."""
        key = identifier(group)
        known = self._standings.get(key)
        if known is None:
            known = self._standings[key] = GroupFrontier(group, self.ranks)
        return known

    @property
    def deaths(self) -> Deaths:
        if self._deaths is None:
            self._deaths = sorted_deaths(self._dead.values(), self.ranks)
        return self._deaths

    def _put(self, old: Rank | None, new: Rank | None) -> Wait | None:
        """Takes a new view in the place of the old one; gives the wait that it tells of."""
        if old is not None:
            self.postures[old.state].discard(old.rank)
            self._doubtful.pop(old.rank, None)
            self._dead.pop(old.rank, None)
        self.told.put(old, new)
        wait = None
        if new is not None:
            self.postures[new.state].add(new.rank)
            wait = wait_of(new)
            if wait is not None and is_wait_doubtful(new, wait):
                self._doubtful[new.rank] = wait
            death = death_of(new)
            if death is not None:
                self._dead[new.rank] = death
            self._advance(old, new)
        # What the living did counts as well, as long as somebody has died.
        self._deaths = None if self._dead else Deaths()
        return wait

    def _advance(self, old: Rank | None, new: Rank) -> None:
        if not self._standings:
            return
        groups = [*new.groups.values(), *(old.groups.values() if old is not None else ())]
        for key in set(map(identifier, groups)):
            frontier = self._standings.get(key)
            if frontier is not None:
                frontier.update(new)

    def _settle(self, waits: Mapping[int, Wait | None]) -> None:
        """Who is blocked in what, after others were heard on those in doubt."""
        for rank, told in waits.items():
            wait = told
            if wait is not None and rank in self._doubtful:
                theirs = self._theirs(wait, waits)
                wait = None if is_message_over(wait, self.ranks, theirs) else wait
            if wait == self.waits.get(rank):
                continue
            self.rewaited.append(rank)
            if wait is None:
                del self.waits[rank]
            else:
                self.waits[rank] = wait
        self.moved.update(self.rewaited)

    def _theirs(self, wait: Wait, waits: Mapping[int, Wait | None]) -> Wait | None:
        """What the other side of a send or receive is blocked in by now."""
        peer = wait.peer
        if peer is None:
            return None
        return waits[peer] if peer in waits else self.waits.get(peer)

    def _settle_doubts(self) -> dict[int, Wait | None]:
        """The waits of those in doubt; what is over is taken out of their pending ops."""
        before, self._corrected = self._corrected, {}
        waits: dict[int, Wait | None] = {}
        others = CompletionByMembers(self.ranks, self.frontier)
        for rank, wait in self._doubtful.items():
            view = self.ranks[rank]
            left = still_pending(view, others)
            waits[rank] = wait
            if len(left) < len(view.pending):
                self._corrected[rank] = replace(view, pending=left)
                waits[rank] = wait_of(self._corrected[rank])
        for rank in before.keys() | self._corrected.keys():
            was, now = before.get(rank), self._corrected.get(rank)
            if was is None or now is None or was.pending != now.pending:
                self.moved.add(rank)
                self.recorrected = True
        return waits

    def _renew(self, corrected: Iterable[int]) -> None:
        """Views of which nothing but counters has changed."""
        for rank in corrected:
            pending = self._corrected[rank].pending
            self._corrected[rank] = replace(self.ranks[rank], pending=pending)
