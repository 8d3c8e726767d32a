"""Who is late by itself, and who because it waited for a straggler: for all tables of calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from frtop_tui.diagnosis.model import Verdict
from frtop_tui.job.statistics import CallRow
from frtop_tui.job.units import percent
from frtop_tui.statistics.last_to_arrive import LastToArrive


@dataclass(frozen=True, slots=True)
class Stragglers:
    """What verdicts say of ranks that arrive late."""

    blamed: frozenset[int] = frozenset()
    waiting: frozenset[int] = frozenset()  # for a straggler, so they arrive late as well
    late_ns: int = 0  # of the least late straggler

    @classmethod
    def of(cls, verdicts: Sequence[Verdict]) -> Stragglers:
        slow = [one for one in verdicts if one.slow is not None]
        blamed = frozenset(rank for one in verdicts for rank in one.culprits)
        waiting = frozenset().union(*(one.victims for one in slow)).difference(blamed)
        late_ns = min((one.slow.late_ns for one in slow if one.slow), default=0)
        return cls(blamed, waiting, late_ns)

    def pass_on(self, last: LastToArrive, calls: Iterable[CallRow]) -> bool:
        """Whether the last rank waits for a straggler and is at least half as late as that one.

        A rank that is less late may have reasons of its own, however small.
        """
        late = max((call.mean_skew_ns or call.skew_ns or 0 for call in calls), default=0)
        return last.rank in self.waiting and 2 * late >= self.late_ns

    def first(self, last: LastToArrive, calls: Sequence[CallRow]) -> LastToArrive:
        """A straggler instead of the rank that arrives last, if it does so about as often.

        A row of many groups has a last rank in each, however little later than the others.
        """
        times: Counter[int] = Counter()
        for call in calls:
            times.update(dict(call.last))
        most = max(self.blamed, key=lambda rank: (times[rank], -rank), default=None)
        if most is None or last.rank in self.blamed or 10 * times[most] < 9 * times[last.rank or 0]:
            return last
        share = last.share * times[most] / max(1, times[last.rank or 0])
        return LastToArrive(f"rank {most}: {percent(share)}", most, share) if share else last

    def words(self, last: LastToArrive, calls: Iterable[CallRow]) -> str:
        """The cell about who arrives last."""
        return f"rank {last.rank}, passed on" if self.pass_on(last, calls) else last.words
