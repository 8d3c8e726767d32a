"""Words for a job in which no rank is in an op."""

from __future__ import annotations

from frtop_tui.diagnosis.detectors.stalled_outside_ops import HeldOutside, RestNote
from frtop_tui.diagnosis.finding import Finding
from frtop_tui.diagnosis.model import Sentences
from frtop_tui.diagnosis.wording.absence import absence_of
from frtop_tui.diagnosis.wording.phrases import Tense, last_op_evidence, who
from frtop_tui.job.model import BaseFrame
from frtop_tui.job.naming import counted, duration, folded
from frtop_tui.job.outside import age_words, is_least_since


def held_outside(
    finding: Finding, detail: HeldOutside, frame: BaseFrame, tense: Tense
) -> Sentences:
    """Which ranks get nowhere, and what holds them."""
    ranks = finding.culprits
    absence = absence_of(frame.ranks[ranks[0]], frame.now_ns)
    held = duration(detail.held_ns / 1e9)
    common = [f"in the same call for {held}, with hardly any CPU time, I/O or growth of memory"]
    if detail.at_store_key:
        common.append(f"{folded(detail.at_store_key)} not in an op either: at a key of the store")
    if detail.others:
        common.append(f"{counted(detail.others, 'more rank')} in no op either, and not looked at")
    gets = tense.of("gets" if len(ranks) == 1 else "get", "got")
    return Sentences(
        f"{_idle_text(detail.issued_ns, frame, tense)}: {who(frame.ranks, ranks)} {gets} nowhere",
        absence.why,
        absence.next,
        (*absence.evidence, *common, *last_op_evidence(frame.ranks, ranks)),
        absence.missing,
    )


def rest_note(note: RestNote, frame: BaseFrame) -> str:
    """For a job at rest: since when no rank has issued an op, and what one of them does."""
    text = _idle_text(note.issued_ns, frame, Tense.PRESENT)
    if note.rank is None:
        return text
    return f"{text}; rank {note.rank}: {absence_of(frame.ranks[note.rank], frame.now_ns).why.text}"


def _idle_text(issued_ns: int, frame: BaseFrame, tense: Tense) -> str:
    least = is_least_since(frame, issued_ns)
    age = age_words((frame.now_ns - issued_ns) / 1e9, least=least)
    return f"nobody {tense.of('is', 'was')} in an op, and none was issued for {age}"
