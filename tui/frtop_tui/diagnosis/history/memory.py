"""What has to be remembered between frames: who was suspected when, and what was found."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final

from frtop_tui.diagnosis.detectors.mismatch.checksums import Partings
from frtop_tui.diagnosis.detectors.mismatch.compare import Mismatch
from frtop_tui.diagnosis.detectors.stalled_outside_ops import RestState
from frtop_tui.diagnosis.graph.wait_node import NodeId
from frtop_tui.diagnosis.history.before_death import BeforeDeath
from frtop_tui.diagnosis.history.false_alarms import FalseAlarms
from frtop_tui.diagnosis.look_requests import LookRequests
from frtop_tui.job.groups import identifier
from frtop_tui.job.model import Health, Rank
from frtop_tui.job.naming import JobKey

CONFIRMED_NS: Final = 2_000_000_000
FORGOTTEN_NS: Final = 5_000_000_000
MOST_FOUND: Final = 8


class Confirmations:
    """Confirms what two looks, at least two seconds apart, agree on."""

    def __init__(self) -> None:
        self._first: dict[Hashable, tuple[int, int]] = {}  # stamp of the first, frame of the last

    def confirms(self, key: Hashable, stamp_ns: int, now_ns: int) -> bool:
        """Whether `key` was suspected at a stamp long enough before this one."""
        first, _ = self._first.get(key, (stamp_ns, now_ns))
        self._first[key] = (first, now_ns)
        return stamp_ns - first >= CONFIRMED_NS

    def forget(self, now_ns: int) -> None:
        """Drops suspicions that have not been repeated for some seconds."""
        stale = [key for key, (_, last) in self._first.items() if now_ns - last > FORGOTTEN_NS]
        for key in stale:
            del self._first[key]


def look_stamp(views: Sequence[Rank]) -> int | None:
    """Operator's time of the oldest last look at `views`; None while one is missing."""
    stamps = [view.snapshot.at_ns + view.clock_ns for view in views if view.snapshot is not None]
    return min(stamps) if stamps and len(stamps) == len(views) else None


def is_second_look_due(views: Sequence[Rank]) -> bool:
    """Whether the next look at one of them will be the first to compare with another."""
    return any(view.snapshot is not None and view.prior_snapshot is None for view in views)


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
    suspicions: Confirmations = field(default_factory=Confirmations)
    found: KnownMismatches = field(default_factory=KnownMismatches)
    partings: Partings = field(default_factory=Partings)
    inquiry: LookRequests = field(default_factory=LookRequests)
    false_alarms: FalseAlarms = field(default_factory=FalseAlarms)
    rest: RestState = field(default_factory=RestState)
    before: BeforeDeath | None = None
    health: Health | None = None
    since_ns: int = 0


def _size(found: Mismatch) -> int:
    return sum(len(party.ranks) for party in found.parties)
