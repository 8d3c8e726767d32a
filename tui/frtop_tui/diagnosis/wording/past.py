"""Words for what was found before a job ended, and how it ended then."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from frtop_tui.diagnosis.evidence.death import INTERRUPTED, Death
from frtop_tui.diagnosis.finding import Finding
from frtop_tui.diagnosis.history.before_death import REMEMBERED_NS, PastFinding, Retrospect
from frtop_tui.diagnosis.model import Sentences, Verdict
from frtop_tui.diagnosis.wording.phrases import Tense, gave_up_text
from frtop_tui.diagnosis.wording.verdict import sentences, verdict_of, word
from frtop_tui.job.model import BaseFrame
from frtop_tui.job.naming import duration, folded

_LIVE_STEP: Final = re.compile(r"/proc/\d|\bkill\b|\bpy-spy\b|\bgdb\b|--pid")
"""A next step that needs a living process."""


def past_findings(findings: Sequence[Finding], frame: BaseFrame) -> tuple[PastFinding, ...]:
    """`findings` with their sentences in the past tense, for when the job has ended."""
    return tuple(
        PastFinding(one.without_nodes, sentences(one, frame, Tense.PAST)) for one in findings
    )


def word_retrospect(found: Retrospect, frame: BaseFrame, seen_ns: int) -> tuple[Verdict, ...]:
    """The verdicts on an ended job; `seen_ns` is when the past findings were last seen."""
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
        evidence.append(f"last seen so {seen} before the first of them ended")
    evidence += [f"then {text}{_raised(group)}" for text, group in zip(texts, ends, strict=True)]
    late = any(group[0].nature == "timeout" for group in ends)
    if finding.left_s is not None and not late:
        left = duration(finding.left_s)
        evidence.append(f"its own timeout would have come {left} later")
    step = said.next
    if _LIVE_STEP.search(step):
        step = f"its process is gone; when it happens again: {step}"
    head, verdict = _headline(said, texts), verdict_of(finding, said)
    return replace(verdict, headline=head, evidence=tuple(evidence), left_s=None, next=step)


def _headline(said: Sentences, texts: Sequence[str]) -> str:
    """Those who waited and gave up are named once."""
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
    """What they raised themselves, which a headline has no place for."""
    return f": {group[0].text}" if group[0].nature in ("timeout", "network") else ""
