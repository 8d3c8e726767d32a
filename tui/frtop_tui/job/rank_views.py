"""The ranks of the shown job, their groups and counts, kept up to date from frame to frame.

A record hands out the same view until it changes. Groups and counts replace only the changed views;
the result equals a full recount.
"""

from __future__ import annotations

from collections.abc import Iterable

from frtop_tui.job.coverage import RankCounts
from frtop_tui.job.groups import Groups
from frtop_tui.job.jobs import JobRanks, started_ns
from frtop_tui.job.model import Health, ObservedRank
from frtop_tui.job.record import RankRecord


class RankViews:
    """One job's ranks at the last update. `views` is replaced, never changed."""

    def __init__(self) -> None:
        self.views: dict[int, ObservedRank] = {}
        self.groups = Groups()
        self.counts = RankCounts()
        self._records: list[RankRecord] = []
        self._by_rank: dict[int, RankRecord] = {}
        self._since_ns: int | None = 0

    def update(self, one: JobRanks, changed: Iterable[RankRecord], now_ns: int) -> None:
        """Brings the views to `now_ns`.

        Args:
            one: the job; while its list of records is the same object, only `changed`
                records are viewed again.
            changed: all records whose views may have changed since the last update.
            now_ns: our clock.
        """
        if one.records is self._records and len(self._by_rank) == len(one.records):
            mine = ((r.identity.rank, r) for r in changed)
            by_rank = {n: r for n, r in mine if self._by_rank.get(n) is r}
            removed: set[int] = set()
        else:
            by_age = sorted(one.records, key=_precedence)
            by_rank = {record.identity.rank: record for record in by_age}
            by_rank = dict(sorted(by_rank.items()))
            removed = self.views.keys() - by_rank.keys()
            self._records, self._by_rank = one.records, by_rank
        new_views: dict[int, ObservedRank] = {}
        for rank, record in by_rank.items():
            view, known = record.view(now_ns), self.views.get(rank)
            if view is not known:
                new_views[rank] = view
                self._put(known, view)
        for rank in removed:
            self._put(self.views[rank], None)
        if removed or not self.views.keys() >= new_views.keys():
            views = self.views | new_views
            self.views = {rank: views[rank] for rank in self._by_rank}
        elif new_views:
            self.views = self.views | new_views

    @property
    def health(self) -> Health:
        """The health before the diagnosis."""
        states = {state for state, count in self.counts.states.items() if count}
        if states <= {"done"}:
            return "ended"
        if states <= {"dead", "done"}:
            return "dead"
        if states <= {"dead", "done", "unreachable"}:
            return "unreachable"
        return "starting" if states <= {"starting"} else "healthy"

    @property
    def since_ns(self) -> int:
        """When a rank last changed its state, on our clock."""
        if self._since_ns is None:
            self._since_ns = max(view.state_since_ns for view in self.views.values())
        return self._since_ns

    def _put(self, old: ObservedRank | None, new: ObservedRank | None) -> None:
        self.groups.put(old, new)
        self.counts.put(old, new)
        before, since_ns = self._since_ns, new.state_since_ns if new is not None else 0
        if before is not None and since_ns >= before:
            self._since_ns = since_ns
        elif old is not None and old.state_since_ns == before:
            self._since_ns = None  # it changed last


def _precedence(record: RankRecord) -> tuple[bool, int]:
    """If two processes have one rank, the living one wins, else the newer one."""
    return (not record.ended, started_ns(record))
