"""The ranks of the job shown, kept from frame to frame: only those that changed are viewed anew.

A record hands out the same view until it changes. So all that is counted over ranks, and
the groups, take the changed views in the place of the old ones, and come to the same as if
all were counted again.
"""

from __future__ import annotations

from collections.abc import Iterable

from frtop_tui.job.coverage import Census
from frtop_tui.job.groups import Groups
from frtop_tui.job.jobs import JobRanks, started
from frtop_tui.job.model import Health, ObservedRank
from frtop_tui.job.record import RankRecord


class Roll:
    """One job's ranks as of the last turn. `views` is replaced, never changed."""

    def __init__(self) -> None:
        self.views: dict[int, ObservedRank] = {}
        self.groups = Groups()
        self.census = Census()
        self._records: list[RankRecord] = []
        self._seniors: dict[int, RankRecord] = {}
        self._since_ns: int | None = 0

    def turn(self, one: JobRanks, touched: Iterable[RankRecord], now_ns: int) -> None:
        """Brings the roll to `now_ns`.

        Args:
            one: the job; as long as its list of records is the same one, only `touched`
                are looked at.
            touched: all whose views may have changed since the last turn.
            now_ns: our clock.
        """
        if one.records is self._records and len(self._seniors) == len(one.records):
            mine = ((r.identity.rank, r) for r in touched)
            seniors = {n: r for n, r in mine if self._seniors.get(n) is r}
            gone: set[int] = set()
        else:
            by_age = sorted(one.records, key=_seniority)
            seniors = {record.identity.rank: record for record in by_age}
            seniors = dict(sorted(seniors.items()))
            gone = self.views.keys() - seniors.keys()
            self._records, self._seniors = one.records, seniors
        changed: dict[int, ObservedRank] = {}
        for rank, record in seniors.items():
            view, known = record.view(now_ns), self.views.get(rank)
            if view is not known:
                changed[rank] = view
                self._put(known, view)
        for rank in gone:
            self._put(self.views[rank], None)
        if gone or not self.views.keys() >= changed.keys():
            whole = self.views | changed
            self.views = {rank: whole[rank] for rank in self._seniors}
        elif changed:
            self.views = self.views | changed

    @property
    def health(self) -> Health:
        """Before anybody has judged."""
        postures = {posture for posture, count in self.census.postures.items() if count}
        if postures <= {"done"}:
            return "ended"
        if postures <= {"dead", "done"}:
            return "dead"
        if postures <= {"dead", "done", "unheard"}:
            return "unheard"
        return "starting" if postures <= {"starting"} else "healthy"

    @property
    def since_ns(self) -> int:
        """Since when nobody has changed its posture."""
        if self._since_ns is None:
            self._since_ns = max(view.state_since_ns for view in self.views.values())
        return self._since_ns

    def _put(self, old: ObservedRank | None, new: ObservedRank | None) -> None:
        self.groups.put(old, new)
        self.census.put(old, new)
        before, since_ns = self._since_ns, new.state_since_ns if new is not None else 0
        if before is not None and since_ns >= before:
            self._since_ns = since_ns
        elif old is not None and old.state_since_ns == before:
            self._since_ns = None  # the last one: who is it now?


def _seniority(record: RankRecord) -> tuple[bool, int]:
    """Two processes that claim one rank: the living one is shown, else the newer."""
    return (record.exit_info is None, started(record))
