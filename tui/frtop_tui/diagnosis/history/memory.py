"""What has to be remembered between frames: who was suspected when, and what was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from frtop_tui.diagnosis.detectors.mismatch.checksums import ChecksumHints
from frtop_tui.diagnosis.detectors.mismatch.compare import Mismatch
from frtop_tui.diagnosis.detectors.stalled_outside_ops import RestState
from frtop_tui.diagnosis.graph.wait_node import NodeId
from frtop_tui.diagnosis.history.before_death import BeforeDeath
from frtop_tui.diagnosis.history.confirmation import Confirmations
from frtop_tui.diagnosis.history.false_alarms import FalseAlarms
from frtop_tui.diagnosis.look_requests import LookRequests
from frtop_tui.job.groups import identifier
from frtop_tui.job.model import Health
from frtop_tui.job.naming import JobKey

MOST_FOUND: Final = 8


class KnownMismatches:
    """Disagreements stay found: the data is wrong even if the job goes on."""

    def __init__(self) -> None:
        self._found: dict[NodeId, Mismatch] = {}

    def keep(self, fresh: Sequence[Mismatch]) -> list[Mismatch]:
        """All found so far, one per group: where the paths parted."""
        for one in fresh:
            key = identifier(one.group)
            known = self._found.get(key)
            if known is None:
                if len(self._found) < MOST_FOUND:
                    self._found[key] = one
            elif one.number < known.number or (
                one.number == known.number and _size(one) >= _size(known)
            ):
                self._found[key] = one
        return list(self._found.values())


@dataclass(slots=True)
class Memory:
    """What frames before this one have to do with what is said of it."""

    job: JobKey | None = None
    confirmations: Confirmations = field(default_factory=Confirmations)
    mismatches: KnownMismatches = field(default_factory=KnownMismatches)
    checksum_hints: ChecksumHints = field(default_factory=ChecksumHints)
    look_requests: LookRequests = field(default_factory=LookRequests)
    false_alarms: FalseAlarms = field(default_factory=FalseAlarms)
    rest: RestState = field(default_factory=RestState)
    before_death: BeforeDeath | None = None
    health: Health | None = None
    since_ns: int = 0


def _size(found: Mismatch) -> int:
    return sum(len(party.ranks) for party in found.parties)
