"""What has to be remembered between frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from frtop_tui.diagnosis.before_death import BeforeDeath
from frtop_tui.diagnosis.blocked.releases import Releases
from frtop_tui.diagnosis.cases.at_rest.detect import RestState
from frtop_tui.diagnosis.cases.mismatch.checksums import ChecksumHints
from frtop_tui.diagnosis.cases.mismatch.compare import Mismatch
from frtop_tui.diagnosis.cases.not_entered.false_alarms import FalseAlarms
from frtop_tui.diagnosis.cases.slow.detect import SlowState
from frtop_tui.diagnosis.cases.slow.episodes import SlowEpisodes
from frtop_tui.diagnosis.cases.unobserved.standing_waits import StandingState
from frtop_tui.diagnosis.confirmation import Confirmations
from frtop_tui.diagnosis.graph.wait_node import NodeId
from frtop_tui.diagnosis.look_requests import LookRequests
from frtop_tui.job.groups import identifier
from frtop_tui.job.model import Health
from frtop_tui.job.naming import JobKey

MOST_FOUND: Final = 8


class KnownMismatches:
    """Mismatches stay known: the data is wrong even if the job goes on."""

    def __init__(self) -> None:
        self._known: dict[NodeId, Mismatch] = {}

    def keep(self, fresh: Sequence[Mismatch]) -> list[Mismatch]:
        """All known mismatches, one for each group: where its ops began to differ."""
        for one in fresh:
            key = identifier(one.group)
            known = self._known.get(key)
            better = known is not None and _order(one) <= _order(known)
            if better or (known is None and len(self._known) < MOST_FOUND):
                self._known[key] = one
        return list(self._known.values())


@dataclass(slots=True)
class Memory:
    """What earlier frames contribute to the judgement of this one."""

    job: JobKey | None = None
    confirmations: Confirmations = field(default_factory=Confirmations)
    mismatches: KnownMismatches = field(default_factory=KnownMismatches)
    checksum_hints: ChecksumHints = field(default_factory=ChecksumHints)
    look_requests: LookRequests = field(default_factory=LookRequests)
    false_alarms: FalseAlarms = field(default_factory=FalseAlarms)
    releases: Releases = field(default_factory=Releases)
    rest: RestState = field(default_factory=RestState)
    standing: StandingState = field(default_factory=StandingState)
    slow: SlowState = field(default_factory=SlowState)
    slow_episodes: SlowEpisodes = field(default_factory=SlowEpisodes)
    before_death: BeforeDeath | None = None
    health: Health | None = None
    since_ns: int = 0


def _order(found: Mismatch) -> tuple[int, int]:
    """The lowest number first, then the one with the most ranks."""
    return found.number, -sum(len(party.ranks) for party in found.parties)
