"""Words for a job in which no rank is in an op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from frtop_probe import wire
from frtop_tui.diagnosis.cases.at_rest.detect import Held, NotEnding, Resting, RestNote
from frtop_tui.diagnosis.evidence.absence_cause import doing, ending_cause
from frtop_tui.diagnosis.evidence.program_end import others_have_ended, program_end
from frtop_tui.diagnosis.finding import Finding
from frtop_tui.diagnosis.model import Sentences, Why
from frtop_tui.diagnosis.words.absence import (
    absence_of,
    ending_step,
    ending_text,
    place_text,
    stacks_step,
)
from frtop_tui.diagnosis.words.phrases import Tense, by_text, last_op_evidence, who
from frtop_tui.job.model import BaseFrame
from frtop_tui.job.naming import folded
from frtop_tui.job.units import counted, duration
from frtop_tui.job.unprepared import age_words, is_least_since

_MOST_PLACES: Final = 4


def held(finding: Finding, detail: Held, frame: BaseFrame, tense: Tense) -> Sentences:
    """Which ranks get nowhere, and what holds them."""
    ranks = finding.culprits
    view = frame.ranks[ranks[0]]
    absence = absence_of(view, frame.now_ns, doing(view))
    common = [_same_text(detail.held_ns)]
    if detail.at_store_key:
        common.append(f"{folded(detail.at_store_key)} also in no op: at a key of the store")
    if detail.others:
        common.append(f"{counted(detail.others, 'more rank')} in no op, not looked at")
    does = tense.of(
        "makes no progress" if len(ranks) == 1 else "make no progress", "made no progress"
    )
    if not detail.proven:
        does = tense.of("stays where it is" if len(ranks) == 1 else "stay where they are", "waited")
    return Sentences(
        f"{_idle_text(detail.issued_ns, frame, tense)}: {who(frame.ranks, ranks)} {does}",
        absence.why,
        absence.next,
        (*absence.evidence, *common, *last_op_evidence(frame.ranks, ranks)),
        absence.missing,
    )


def not_ending(finding: Finding, detail: NotEnding, frame: BaseFrame, tense: Tense) -> Sentences:
    """Which ranks have left, which do not end, and what their exit waits for."""
    ranks, view = finding.culprits, frame.ranks[finding.culprits[0]]
    unseen, launched = frame.coverage.unreachable, others_have_ended(view)
    left = tuple(sorted({*detail.left, *unseen})) if launched else detail.left
    end = program_end(view, others_left=bool(left))
    absence = absence_of(view, frame.now_ns, doing(view))
    if end is not None:
        text = ending_text(end, absence.why.text)
        why = Why(finding.cause, ending_cause(view).layer, text)
        absence = replace(absence, why=why, next=ending_step(end, absence.next))
    does = tense.of("does" if len(ranks) == 1 else "do", "did")
    head = f"{who(frame.ranks, ranks)} {does} not end"
    if left:
        head = f"{folded(left)} {tense.has(left)} left, and {head}"
    missing = [f"{folded(unseen)}: they have left, or are elsewhere"] if unseen else []
    return Sentences(
        head,
        absence.why,
        absence.next,
        (
            *absence.evidence,
            _same_text(detail.held_ns),
            *((wire.OTHERS_ENDED,) if launched else ()),
            *(_places(frame, ranks) if len(ranks) > 1 else ()),
            *last_op_evidence(frame.ranks, ranks),
        ),
        (*absence.missing, *([] if launched else missing)),
    )


def resting(_finding: Finding, detail: Resting, frame: BaseFrame, tense: Tense) -> Sentences:
    """Where each rank is, if no rank is in an op and none can be named."""
    ranks = detail.ranks
    places = _places(frame, ranks)
    where = places.pop() if len(places) == 1 else f"{folded(ranks)} are at different places"
    evidence = [*places]
    if detail.left:
        evidence.append(f"{folded(detail.left)} {tense.has(detail.left)} left")
    if detail.others:
        evidence.append(f"{counted(detail.others, 'more rank')} in no op, not looked at")
    idle = [rank for rank in ranks if doing(frame.ranks[rank]).cause == "idle"]
    reason = "nothing shows what they wait for; it may be one of them"
    if idle:
        are = Tense.PRESENT.are(idle)
        reason = (
            f"{folded(idle)} {are} where a server waits for work, but was never seen to wait"
            " there before and go on"
        )
    missing = [f"{folded(detail.unseen)}: could not be looked at"] if detail.unseen else []
    if frame.coverage.unreachable:
        missing.append(f"{folded(frame.coverage.unreachable)}: whether they are alive")
    return Sentences(
        f"{_idle_text(detail.issued_ns, frame, tense)}; {where}",
        Why.of("unknown", reason),
        f"is this pause part of the program? If not, look at the lines above;"
        f" {stacks_step(frame.ranks[ranks[0]])}",
        tuple(evidence),
        tuple(missing),
    )


def rest_note(note: RestNote, frame: BaseFrame) -> str:
    """For a job at rest: since when no rank has issued an op, and where each is instead."""
    text = _idle_text(note.issued_ns, frame, Tense.PRESENT)
    places = _places(frame, note.ranks)
    more = f"; and at {counted(len(places) - _MOST_PLACES, 'more place')}"
    return "; ".join((text, *places[:_MOST_PLACES])) + (more if len(places) > _MOST_PLACES else "")


def _places(frame: BaseFrame, ranks: Sequence[int]) -> list[str]:
    """`ranks 0-2: MainThread sleeps at train.py:9 (main)`."""
    return by_text((rank, place_text(frame.ranks[rank], frame.now_ns)) for rank in ranks)


def _same_text(held_ns: int) -> str:
    held = duration(held_ns / 1e9)
    return f"in the same call for {held}, with almost no CPU time, I/O or memory growth"


def _idle_text(issued_ns: int, frame: BaseFrame, tense: Tense) -> str:
    least = is_least_since(frame, issued_ns)
    age = age_words((frame.now_ns - issued_ns) / 1e9, least=least)
    return (
        f"no rank {tense.of('is in an op, and none has been', 'was in an op, and none had been')}"
        f" issued for {age}"
    )
