"""The health of a job, and since when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from frtop_tui.diagnosis.evidence.rank_activity import last_issued_ns
from frtop_tui.diagnosis.model import Verdict, VerdictKind
from frtop_tui.diagnosis.thresholds import PATIENCE_WITHOUT_HISTORY_NS
from frtop_tui.job.model import BaseFrame, Health

_OF_KIND: Final[dict[VerdictKind, Health]] = {
    "dead": "dead",
    "mismatch": "mismatch",
    "undecided": "undecided",
    "slow": "slow",
}


def health_of(before: Health, verdicts: Sequence[Verdict], *, waiting: bool) -> Health:
    """The job's health by its first verdict; without one, the health `before` the diagnosis."""
    if not verdicts and waiting and before in ("healthy", "starting"):
        return "waiting"
    if not verdicts:
        return "ended" if before == "dead" else before
    first = verdicts[0]
    if first.kind in _OF_KIND:
        # A lasting wait in a slow job may be a hang.
        return "waiting" if first.kind == "slow" and waiting else _OF_KIND[first.kind]
    hung = first.confidence == "confirmed" and first.progress == "none"
    return "hung" if hung else "held up"


def as_far_as_seen(frame: BaseFrame, health: Health, *, compared: bool = True) -> Health:
    """The health; "undecided" if the job looks healthy, but too little of it was seen.

    It is enough that all ranks report, or that those that report issue ops and none waits for long:
    then the others go on, too. A file cannot show that. Besides, ops whose checksums differ must
    have been `compared`, and ranks without a recorder looked at more than once.
    """
    coverage = frame.coverage
    looks = bool(coverage.unprepared) and any(host.searching for host in frame.hosts)
    if health == "healthy" and (looks or not compared):
        return "undecided"
    if health != "healthy" or coverage.reporting >= coverage.expected:
        return health
    goes_on = frame.recorded is None and any(
        rank.evidence.has_ages
        and frame.now_ns - rank.clock_ns - last_issued_ns(rank) < PATIENCE_WITHOUT_HISTORY_NS
        for rank in frame.ranks.values()
    )
    return health if goes_on else "undecided"


def since_of(
    frame: BaseFrame, health: Health, verdicts: Sequence[Verdict], waiting_ns: int, seen_ns: int
) -> int:
    """When `health` began, on the operator's clock; 0 if not known.

    `frame` is not judged yet; this health was first seen at `seen_ns`.
    """
    if verdicts and verdicts[0].since_ns and health != "waiting":
        return verdicts[0].since_ns
    if health == "undecided" or not any(rank.evidence.has_ages for rank in frame.ranks.values()):
        return 0  # the time at which a file was read says nothing
    if health == "waiting":
        return waiting_ns
    # The ranks themselves know this: it may have begun before frtop saw it.
    return frame.since_ns if health in ("ended", "unreachable") else seen_ns
