"""The health of a job, and since when it has been so."""

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
    """The job's health by its first verdict, else as it was `before` anybody judged."""
    if not verdicts and waiting and before in ("healthy", "starting"):
        return "waiting"
    if not verdicts:
        return "ended" if before == "dead" else before
    first = verdicts[0]
    if first.kind in _OF_KIND:
        # A wait that lasts may be the hang that a slow job has run into.
        return "waiting" if first.kind == "slow" and waiting else _OF_KIND[first.kind]
    hung = first.confidence == "confirmed" and first.progress == "none"
    return "hung" if hung else "held up"


def as_far_as_seen(frame: BaseFrame, health: Health, *, compared: bool = True) -> Health:
    """A job is well only if all of it was seen, or what was seen shows that it goes on.

    Nor is it well while ops whose checksums differ could not be `compared`.

    Ranks that issue ops go on with those that do not report, as long as no wait lasts. A file has
    no such moment.
    """
    if health == "healthy" and not compared:
        return "undecided"
    coverage = frame.coverage
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
    """Since when a job has had `health`, on the operator's clock; 0 where nothing tells.

    `frame` is not judged yet. `seen_ns`: when this health was first seen.
    """
    if verdicts and verdicts[0].since_ns and health != "waiting":
        return verdicts[0].since_ns
    if health == "undecided" or not any(rank.evidence.has_ages for rank in frame.ranks.values()):
        return 0  # when a file was read says nothing
    if health == "waiting":
        return waiting_ns
    # Of these the ranks themselves tell: they need not be first seen here.
    return frame.since_ns if health in ("ended", "unreachable") else seen_ns
