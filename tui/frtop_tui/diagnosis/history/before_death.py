"""What was found before the first bad death, and what of it still counts after.

What ends a job is mostly not what was wrong with it. It hung, and its launcher, its scheduler,
a person or torch's own timeout ended it: then what was found before is the verdict, and the
deaths follow from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from frtop_tui.diagnosis.detectors.deaths.roots import Deaths
from frtop_tui.diagnosis.evidence.death import Death
from frtop_tui.diagnosis.evidence.rank_activity import last_issued_ns
from frtop_tui.diagnosis.finding import Finding
from frtop_tui.diagnosis.model import Sentences
from frtop_tui.job.model import ObservedFrame

MOST_ENDINGS: Final = 3
REMEMBERED_NS: Final = 3_000_000_000
"""Ops that fail are over a moment before it is heard that their ranks raised."""


class PastFinding(NamedTuple):
    """A finding, and its sentences in the past tense."""

    finding: Finding
    said: Sentences


class BeforeDeath(NamedTuple):
    """The last that was found in a job while nobody had died."""

    at_ns: int
    findings: tuple[PastFinding, ...]
    waits: tuple[str, ...] = ()


class Retrospect(NamedTuple):
    """What was found before the deaths and still counts, and how its ranks ended.

    `first`: it is the cause of the end, and comes before what the deaths show.
    """

    past: tuple[PastFinding, ...]
    ends: tuple[tuple[Death, ...], ...]
    causes: tuple[Finding, ...]
    first: bool


def remember(
    known: BeforeDeath | None,
    frame: ObservedFrame,
    findings: tuple[PastFinding, ...],
    waits: tuple[str, ...],
) -> BeforeDeath | None:
    """What to remember after a frame in which nobody has died, on top of `known`."""
    if findings or waits:
        return BeforeDeath(frame.now_ns, findings, waits)
    if known is None or frame.now_ns - known.at_ns > REMEMBERED_NS:
        return None
    blamed = {rank for past in known.findings for rank in past.finding.culprits}
    ranks = [frame.ranks[rank] for rank in blamed if rank in frame.ranks]
    went_on = any(last_issued_ns(rank) + rank.clock_ns > known.at_ns for rank in ranks)
    return None if went_on else known


def retrospect(before: BeforeDeath, after: Sequence[Finding], deaths: Deaths) -> Retrospect | None:
    """What of `before` the deaths do not explain better; None if nothing."""
    past = tuple(one for one in before.findings if not _is_repeated(one.finding, after))
    if not past:
        return None
    own = {death.rank for group in deaths.roots if _of_itself(group, deaths) for death in group}
    causes = tuple(
        finding
        for finding in after
        if finding.kind == "mismatch" or (finding.kind == "dead" and own & {*finding.culprits})
    )
    hung = past[0].finding.hung
    return Retrospect(past, _endings(deaths, own), causes, hung or not causes)


def _endings(deaths: Deaths, explained: set[int]) -> tuple[tuple[Death, ...], ...]:
    """The ends of ranks that nothing else explains, alike ones together, first by time."""
    groups: dict[tuple[str, str], list[Death]] = {}
    for death in sorted(deaths.every, key=lambda death: death.at_ns):
        if death.rank not in explained:
            groups.setdefault((death.nature, death.likeness[1]), []).append(death)
    return tuple(map(tuple, groups.values()))[:MOST_ENDINGS]


def _of_itself(group: Sequence[Death], deaths: Deaths) -> bool:
    """Whether these ranks failed by themselves; if all were killed, they did not."""
    if all(death.killed for death in group):
        return len(deaths.every) > len(group)
    return any(death.nature == "own" for death in group)


def _is_repeated(finding: Finding, others: Sequence[Finding]) -> bool:
    """Whether the end shows the same and more, or it still holds."""
    alike = [other for other in others if other.kind == finding.kind]
    if finding.kind in ("dead", "mismatch"):
        return any(_involved(finding) & _involved(other) for other in alike)
    # `left_s` is None once the wait has ended.
    return any(
        _involved(other) == _involved(finding)
        and other.op == finding.op
        and (other.left_s is None) == (finding.left_s is None)
        for other in alike
    )


def _involved(finding: Finding) -> set[int]:
    return {*finding.culprits, *(rank for party in finding.parties for rank in party)}
