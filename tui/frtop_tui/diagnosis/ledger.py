"""What is known of all ranks, kept from frame to frame: waits, deaths, how far groups are.

A view that is the same object tells the same. So a turn goes over the views once, works out
the facts of those that differ, and puts these in the place of the old ones everywhere. What
it comes to is what a new ledger would come to that is given the same ranks; tests hold it
to that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import compress
from operator import is_not
from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis.deaths import Death, Deaths, sorted_deaths
from frtop_tui.diagnosis.facts import Facts, facts_of, tell_the_same
from frtop_tui.diagnosis.standing import Standing
from frtop_tui.diagnosis.told import Told
from frtop_tui.diagnosis.unnoted import is_past, still_pending
from frtop_tui.diagnosis.waiting import Wait, wait_of
from frtop_tui.job.groups import Identifier, identifier
from frtop_tui.job.model import Posture, RankView

_NO_OPS: Final[Mapping[tuple[str, str, int, int], wire.Op]] = {}


class Ledger:
    """One job's ranks as of the last turn.

    `ranks` are those of the frame, `views` the same without pending ops that are over.
    Of the last turn is told: `seen`, whose views were other ones; `moved`, of whom anything
    else is known than before; `rewaited`, who is blocked in something else; `recorrected`,
    that other ops are taken to be over; `whole`, that they are not the same ranks any more.
    """

    def __init__(self) -> None:
        self.ranks: Mapping[int, RankView] = {}
        self.views: Mapping[int, RankView] = {}
        self.waits: dict[int, Wait] = {}
        self.postures: defaultdict[Posture, set[int]] = defaultdict(set)
        self.told = Told()
        self.seen: list[int] = []
        self.moved: set[int] = set()
        self.rewaited: list[int] = []
        self.recorrected = False
        self.whole = True
        self._facts: dict[int, Facts] = {}
        self._standings: dict[Identifier, Standing] = {}
        self._doubtful: set[int] = set()
        self._corrected: dict[int, RankView] = {}
        self._dead: dict[int, Death] = {}
        self._deaths: Deaths | None = Deaths()

    def turn(self, ranks: Mapping[int, RankView]) -> None:
        """Brings everything to `ranks`, of which those that are the same tell the same."""
        before, self.ranks = self.ranks, ranks
        self.whole = [*before] != [*ranks]
        self.moved, self.recorrected = set(), False
        if self.whole:
            self._standings.clear()
            for rank in before.keys() - ranks.keys():
                self._forget(before[rank])
            self.seen = [rank for rank, view in ranks.items() if before.get(rank) is not view]
        else:
            differs = map(is_not, ranks.values(), before.values())
            self.seen = list(compress(ranks, differs))
        for rank in self.seen:
            old, new = before.get(rank), ranks[rank]
            if old is None or not tell_the_same(old, new):
                self._put(old, new)
        self._settle_waits()
        self.views = {**ranks, **self._corrected} if self._corrected else ranks

    def standing(self, group: wire.Group) -> Standing:
        """How far the members of a group are; kept from the first question on."""
        key = identifier(group)
        known = self._standings.get(key)
        if known is None:
            known = self._standings[key] = Standing(group, self._facts)
        return known

    @property
    def deaths(self) -> Deaths:
        if self._deaths is None:
            self._deaths = sorted_deaths(self._dead.values(), self.ranks)
        return self._deaths

    def _put(self, old: RankView | None, new: RankView) -> None:
        rank, facts = new.rank, facts_of(new)
        known = self._facts.get(rank)
        self._facts[rank] = facts
        self.moved.add(rank)
        if old is not None:
            self.postures[old.posture].discard(rank)
        self.postures[new.posture].add(rank)
        self.told.put(rank, known.told if known is not None else _NO_OPS, facts.told)
        for key in {*facts.reached, *(known.reached if known is not None else ())}:
            standing = self._standings.get(key)
            if standing is not None:
                standing.put(rank, facts)
        self._doubtful.discard(rank)
        if facts.doubtful:
            self._doubtful.add(rank)
        self._note_death(rank, facts.death)

    def _forget(self, view: RankView) -> None:
        facts = self._facts.pop(view.rank)
        self.moved.add(view.rank)
        self.postures[view.posture].discard(view.rank)
        self.told.put(view.rank, facts.told, _NO_OPS)
        self._doubtful.discard(view.rank)
        self._note_death(view.rank, None)

    def _note_death(self, rank: int, death: Death | None) -> None:
        if death is not None:
            self._dead[rank] = death
        else:
            self._dead.pop(rank, None)
        # What the living did counts as well, as long as somebody has died.
        self._deaths = None if self._dead else Deaths()

    def _settle_waits(self) -> None:
        """Who is blocked in what, after the others were heard on those in doubt."""
        if not self.moved:
            self._renew(self._corrected.keys() & set(self.seen))
            self.rewaited = []
            return
        known = self._facts
        fresh: dict[int, Wait | None] = {
            rank: known[rank].wait if rank in known else None for rank in self.moved
        }
        fresh.update(self._settle_doubts())
        for rank in self._doubtful:
            wait = fresh[rank]
            if wait is not None and is_past(wait, self.ranks, self._theirs(wait, fresh)):
                fresh[rank] = None
        self.rewaited = [rank for rank, wait in fresh.items() if wait != self.waits.get(rank)]
        for rank in self.rewaited:
            wait = fresh[rank]
            if wait is None:
                del self.waits[rank]
            else:
                self.waits[rank] = wait
        self.moved.update(self.rewaited)

    def _theirs(self, wait: Wait, fresh: Mapping[int, Wait | None]) -> Wait | None:
        """What the other side of a send or receive is blocked in by now."""
        peer = wait.op.signature.peer if wait.op.signature is not None else None
        if peer is None:
            return None
        return fresh[peer] if peer in fresh else self.waits.get(peer)

    def _settle_doubts(self) -> dict[int, Wait | None]:
        """The waits of those in doubt; what is over is taken out of their pending ops."""
        before, self._corrected = self._corrected, {}
        waits: dict[int, Wait | None] = {}
        for rank in self._doubtful:
            view = self.ranks[rank]
            left = still_pending(view, self.ranks, self.standing)
            waits[rank] = self._facts[rank].wait
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
