"""Since when somebody is slow, and what it has cost since: more than one window of ops shows."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from frtop_tui.diagnosis.cases.slow.detect import SlowDetail
from frtop_tui.diagnosis.finding import Finding
from frtop_tui.diagnosis.thresholds import SLOW_FORGOTTEN_NS

MOST: Final = 64
"""Episodes that are remembered: more at a time is no straggler any more."""


@dataclass(slots=True)
class SlowEpisode:
    """One cause of slowness. Times are of the operator's clock.

    `lost_ns` is what all who wait lost up to `until_ns`, together.
    """

    since_ns: int
    until_ns: int
    lost_ns: float
    at_least: bool


@dataclass(slots=True)
class SlowEpisodes:
    """The episodes of one job."""

    _known: dict[Hashable, SlowEpisode] = field(default_factory=dict)

    def apply(self, findings: Sequence[Finding]) -> tuple[Finding, ...]:
        """The findings with what was seen of the same causes in earlier windows."""
        return tuple(map(self._extended, findings))

    def _extended(self, finding: Finding) -> Finding:
        detail = finding.detail
        if not isinstance(detail, SlowDetail):
            return finding
        seen, until_ns = detail.slowness, detail.until_ns
        rate = seen.share * seen.waiting
        known = self._known.get(finding.key)
        if known is None:
            lost_ns = rate * max(0, until_ns - finding.since_ns)
            known = SlowEpisode(finding.since_ns, until_ns, lost_ns, seen.at_least)
            if detail.sure and len(self._known) < MOST:  # a suspicion begins anew each time
                self._known[finding.key] = known
        elif until_ns > known.until_ns:
            known.lost_ns += rate * (until_ns - known.until_ns)
            known.until_ns = until_ns
        since = replace(seen, lost_ns=round(known.lost_ns), at_least=known.at_least)
        # Who was slow for sure before, and still seems to be, is.
        sure = detail.sure or finding.key in self._known
        detail = replace(detail, slowness=since, sure=sure)
        return replace(finding, since_ns=known.since_ns, detail=detail)

    def forget(self, now_ns: int) -> None:
        """Ends episodes that no window has shown for long."""
        ended = [
            key for key, one in self._known.items() if now_ns - one.until_ns > SLOW_FORGOTTEN_NS
        ]
        for key in ended:
            del self._known[key]
