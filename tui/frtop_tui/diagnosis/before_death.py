"""What was found before the first bad death, and how much of it still counts afterwards.

What ends a job is usually not what was wrong with it. It hung, and then its launcher, its
scheduler, a person or torch's own timeout ended it: the earlier finding is the verdict, and the
deaths follow from it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from frtop_tui.diagnosis.cases.dead.roots import Deaths
from frtop_tui.diagnosis.evidence.death import INTERRUPTED, Death
from frtop_tui.diagnosis.evidence.rank_activity import last_issued_ns
from frtop_tui.diagnosis.finding import Finding
from frtop_tui.diagnosis.model import Sentences, Verdict
from frtop_tui.diagnosis.verdicts import sentences, verdict_of, word
from frtop_tui.diagnosis.words.phrases import Tense, gave_up_text
from frtop_tui.job.model import BaseFrame, ObservedFrame
from frtop_tui.job.naming import folded
from frtop_tui.job.units import duration

MOST_ENDINGS: Final = 3
REMEMBERED_NS: Final = 3_000_000_000
"""A failed op ends a moment before its ranks are reported to have raised."""


class PastFinding(NamedTuple):
    """A finding, and its sentences in the past tense."""

    finding: Finding
    said: Sentences


class BeforeDeath(NamedTuple):
    """What was last found in a job while no rank had died."""

    at_ns: int
    findings: tuple[PastFinding, ...]
    waits: tuple[str, ...] = ()


class Retrospect(NamedTuple):
    """Earlier findings that still count, and how the ranks ended.

    `first`: they caused the end, so they come before what the deaths show.
    """

    past: tuple[PastFinding, ...]
    ends: tuple[tuple[Death, ...], ...]
    causes: tuple[Finding, ...]
    first: bool


def remember(
    known: BeforeDeath | None,
    frame: ObservedFrame,
    findings: Sequence[Finding],
    waits: tuple[str, ...],
) -> BeforeDeath | None:
    """What to remember after a frame without deaths, on top of `known`."""
    if findings or waits:
        past = (PastFinding(f.without_nodes, sentences(f, frame, Tense.PAST)) for f in findings)
        return BeforeDeath(frame.now_ns, tuple(past), waits)
    if known is None or frame.now_ns - known.at_ns > REMEMBERED_NS:
        return None
    blamed = {rank for past in known.findings for rank in past.finding.culprits}
    ranks = [frame.ranks[rank] for rank in blamed if rank in frame.ranks]
    went_on = any(last_issued_ns(rank) + rank.clock_ns > known.at_ns for rank in ranks)
    return None if went_on else known


def retrospect(before: BeforeDeath, after: Sequence[Finding], deaths: Deaths) -> Retrospect | None:
    """Findings of `before` that the deaths do not explain better; None if there are none."""
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
    """The deaths that nothing else explains, in order of time; equal ones are grouped."""
    groups: dict[tuple[str, str], list[Death]] = {}
    for death in sorted(deaths.every, key=lambda death: death.at_ns):
        if death.rank not in explained:
            groups.setdefault((death.nature, death.likeness[1]), []).append(death)
    return tuple(map(tuple, groups.values()))[:MOST_ENDINGS]


def _of_itself(group: Sequence[Death], deaths: Deaths) -> bool:
    """Whether these ranks failed by themselves, and were not all killed."""
    if all(death.killed for death in group):
        return len(deaths.every) > len(group)
    return any(death.nature == "own" for death in group)


def _is_repeated(finding: Finding, others: Sequence[Finding]) -> bool:
    """Whether findings about the end show the same or more, or the finding still holds."""
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


_LIVE_STEP: Final = re.compile(r"/proc/\d|\bkill\b|\bpy-spy\b|\bgdb\b|--pid")
"""A next step that needs a living process."""


def word_retrospect(found: Retrospect, frame: BaseFrame, seen_ns: int) -> tuple[Verdict, ...]:
    """The verdicts on an ended job; past findings were last seen at `seen_ns`."""
    past = tuple(_word_past(one, found.ends, seen_ns) for one in found.past)
    causes = tuple(word(finding, frame) for finding in found.causes)
    return (*past, *causes) if found.first else (*causes, *past)


def _word_past(past: PastFinding, ends: Sequence[Sequence[Death]], seen_ns: int) -> Verdict:
    finding, said = past
    if not ends:
        return verdict_of(finding, said)
    texts, unseen_ns = [_ending(group) for group in ends], ends[0][0].at_ns - seen_ns
    evidence = [*said.evidence]
    if unseen_ns > REMEMBERED_NS // 3:
        seen = duration(unseen_ns / 1e9)
        evidence.append(f"last seen this way {seen} before the first of them ended")
    evidence += [f"then {text}{_raised(group)}" for text, group in zip(texts, ends, strict=True)]
    late = any(group[0].nature == "timeout" for group in ends)
    if finding.left_s is not None and not late:
        left = duration(finding.left_s)
        evidence.append(f"its own timeout would have come {left} later")
    step = said.next
    if _LIVE_STEP.search(step):
        step = f"its process is gone; if it happens again: {step}"
    head, verdict = _headline(said, texts), verdict_of(finding, said)
    return replace(verdict, headline=head, evidence=tuple(evidence), left_s=None, next=step)


def _headline(said: Sentences, texts: Sequence[str]) -> str:
    """The headline; ranks that waited and gave up are named once."""
    waited = said.waiting.removesuffix(" waited")
    if waited != said.waiting and texts[0].startswith(f"{waited} gave up"):
        return f"{said.head} in time; {', then '.join(texts)}"
    return f"{said.headline}; then {', '.join(texts)}"


def _ending(deaths: Sequence[Death]) -> str:
    """`ranks 0-3 were ended by SIGTERM`."""
    first = deaths[0]
    ranks = folded(death.rank for death in deaths)
    were = Tense.PAST.are(deaths)
    if first.cause == INTERRUPTED:
        return f"{ranks} {were} {first.text}"
    if first.cause == "signal":
        signal = first.text.partition("(")[2].rstrip(")") or first.text
        return f"{ranks} {were} ended by {signal}"
    if first.nature == "timeout":
        return f"{ranks} {gave_up_text(first)}"
    if first.nature == "network":
        return f"{ranks} lost the connection"
    return f"{ranks} ended: {first.text}"


def _raised(group: Sequence[Death]) -> str:
    """What they raised themselves: the headline has no room for it."""
    return f": {group[0].text}" if group[0].nature in ("timeout", "network") else ""
