"""Words for ranks that died or left, and for the ranks that needed them."""

from __future__ import annotations

from collections.abc import Sequence

from frtop_tui.diagnosis.cases.dead.detect import (
    Aborted,
    ConnectionsBroke,
    Died,
    Exited,
    GaveUp,
    LeftGroup,
    MissedOp,
)
from frtop_tui.diagnosis.causes import CAUSES, Layer
from frtop_tui.diagnosis.evidence.death import INTERRUPTED, Death, ended_ns
from frtop_tui.diagnosis.evidence.stack_location import line_and_function
from frtop_tui.diagnosis.evidence.stack_state import stack_state
from frtop_tui.diagnosis.evidence.working_thread import working_stack
from frtop_tui.diagnosis.finding import Finding
from frtop_tui.diagnosis.model import Sentences, Why
from frtop_tui.diagnosis.words.absence import absence_of
from frtop_tui.diagnosis.words.phrases import (
    Tense,
    broken_evidence,
    by_text,
    cut,
    gave_up_text,
    label_of,
    op_text,
    progress_text,
    wait_evidence,
    who,
)
from frtop_tui.job.model import BaseFrame, Rank
from frtop_tui.job.naming import folded
from frtop_tui.job.stack_frames import shown_frames, user_frame
from frtop_tui.job.units import duration


def exited(_finding: Finding, detail: Exited, frame: BaseFrame, tense: Tense) -> Sentences:
    """Which ranks left before which op, and which ranks needed them."""
    views, ranks, node, missed = frame.ranks, detail.ranks, detail.node, detail.missed
    ages = [max(0.0, (frame.now_ns - ended_ns(views[rank])) / 1e9) for rank in ranks]
    first = views[ranks[0]]
    code = first.exit_info.exit_code if first.exit_info is not None else None
    status = "with exit status 0" if code == 0 else "in an orderly way"
    waiting = detail.victims & set(node.waiting) if node is not None else frozenset()
    then = [tense.waits(waiting)] if waiting else []
    if detail.victims - waiting:
        then.append(f"{folded(detail.victims - waiting)} lost their connections to it")
    before = f" before {_missed_text(missed)}" if missed is not None else ""
    evidence = [
        f"rank {rank} ended {duration(age)} ago" for rank, age in zip(ranks, ages, strict=True)
    ][:4]
    if node is not None:
        before = f" before {op_text(node)}"
        evidence.append(wait_evidence(node, frame))
    evidence += broken_evidence(views, detail.victims)
    text = (
        f"it ended by itself {duration(max(ages))} ago while others still had ops to do:"
        " fewer batches, or an early return"
    )
    return Sentences(
        f"{who(views, ranks)} left the program {status}{before}; {', '.join(then)}",
        Why.of("exited", text),
        CAUSES["exited"].step,
        tuple(evidence),
    )


def died(_finding: Finding, detail: Died, frame: BaseFrame, tense: Tense) -> Sentences:
    """Which ranks died of what, which wait for them, and which ended after them."""
    first, ranks = detail.deaths[0], tuple(sorted(death.rank for death in detail.deaths))
    view = frame.ranks[first.rank]
    aged = view.evidence.has_ages
    evidence = [
        f"rank {death.rank} {duration((frame.now_ns - death.at_ns) / 1e9)} ago: {death.text}"
        if aged
        else f"rank {death.rank}: {death.text}"
        for death in detail.deaths[:4]
    ]
    if view.exception is not None and view.exception.main:
        raised_in = shown_frames(view.exception.frames)[:4]
        evidence += [f"  {line_and_function(raised)}" for raised in raised_in]
    evidence += broken_evidence(frame.ranks, detail.followers)
    waiting = tense.waits(detail.waiting) if detail.waiting else ""
    if detail.followers - detail.waiting and not detail.waiting:
        waiting = f"{folded(detail.followers)} ended after it"
    how = f"{'were ended from outside' if detail.ended_outside else 'died'}: {cut(first.text)}"
    if first.cause == INTERRUPTED:
        how = f"{Tense.PAST.are(ranks)} {first.text}"
    why, step = _why_and_step(first, view)
    head = f"{who(frame.ranks, ranks)} {how}"
    return Sentences(head, why, step, tuple(evidence), waiting=waiting)


def aborted(_finding: Finding, detail: Aborted, frame: BaseFrame, _tense: Tense) -> Sentences:
    """Which ranks were aborted; why is not known yet."""
    first, ranks = detail.deaths[0], sorted(death.rank for death in detail.deaths)
    head = f"{who(frame.ranks, ranks)} died: {cut(first.text)};"
    untold = [rank for rank in ranks if not frame.ranks[rank].evidence.has_exceptions]
    if untold:
        outside = any(frame.ranks[rank].evidence.has_process for rank in untold)
        seen = "cannot be seen from outside" if outside else "is in none of these lines"
        return Sentences(
            f"{head} the cause {seen}",
            Why(first.cause, "unknown", "without a recorder, a rank's exception is not seen"),
            f"read the end of rank {untold[0]}'s output",
            _texts(detail.deaths[:4]),
        )
    return Sentences(
        f"{head} the last ops of the dead ranks will show why",
        Why(
            first.cause, "unknown", "gloo also aborts ranks whose op does not match another rank's"
        ),
        "wait a moment: their last ops are being read",
        _texts(detail.deaths[:4]),
    )


def connections_broke(
    _finding: Finding, detail: ConnectionsBroke, frame: BaseFrame, _tense: Tense
) -> Sentences:
    """Every connection closed, and it is not known which rank closed the first."""
    unreachable = frame.coverage.unreachable
    named = folded(death.rank for death in detail.followers)
    if detail.followers[0].nature == "timeout":
        gave_up = {death.rank for death in detail.followers}
        views = frame.ranks.items()
        unknown = {rank for rank, view in views if not view.evidence.has_numbers}
        return _timed_out(detail.followers, sorted({*unknown, *unreachable} - gave_up))
    if all(death.nature == "mismatch" for death in detail.followers):
        return Sentences(
            f"{named} called different ops, by torch's own check; which rank is wrong is not known",
            Why("unknown", "software", "collective mismatch (desync)"),
            "compare the calls of these ranks",
            _texts(detail.followers[:6]),
        )
    return Sentences(
        f"{named} ended, none by a cause of its own: {cut(detail.followers[0].text)}",
        Why("unknown", "network", "connections broke before any known rank died"),
        "look at the hosts that do not report, and at the launcher's output",
        _texts(detail.followers[:6]),
        (folded(unreachable),) if unreachable else (),
    )


def _timed_out(deaths: Sequence[Death], others: Sequence[int]) -> Sentences:
    """A rank gave up waiting before any connection broke, and none is known to have been late."""
    late, step = "no rank is known to have been late", "next time, frtop run --record DIR -- ..."
    if others:
        late = f"how far {folded(others)} came is not known"
        step = f"read the output of {folded(others)}: a rank that was late may be among them"
    first = [death for death in deaths if death.nature == "timeout"]
    return Sentences(
        f"{folded(one.rank for one in first)} {gave_up_text(first[0])}; {late}",
        Why("unknown", "unknown", "torch's own timeout (watchdog timeout) ended the job"),
        step,
        tuple(by_text((death.rank, death.text) for death in deaths)[:6]),
        (f"what {folded(others)} did",) if others else (),
    )


def left_group(finding: Finding, detail: LeftGroup, frame: BaseFrame, tense: Tense) -> Sentences:
    """Which ranks closed their connections while others still had ops to do."""
    victims = folded(death.rank for death in detail.deaths)
    text = "it destroyed its process group, or is leaving the program"
    return Sentences(
        f"{who(frame.ranks, finding.culprits)} closed its connections while {victims}"
        " still had ops to do",
        Why.of("out_of_loop", text),
        "compare the number of steps per rank, and where each calls destroy_process_group",
        (*_texts(detail.deaths[:4]), progress_text(detail.progress)),
        waiting=tense.waits(detail.waiting) if detail.waiting else "",
    )


def gave_up(finding: Finding, detail: GaveUp, frame: BaseFrame, tense: Tense) -> Sentences:
    """Which ranks the others waited for until torch's own timeout."""
    ranks, first = finding.culprits, detail.deaths[0]
    why, seen = _why_late(frame.ranks[ranks[0]])
    open_calls = [rank for rank in ranks if not frame.ranks[rank].evidence.has_every_op]
    missing = (
        f"whether {folded(open_calls)} made the call: torch counts an op once it is in the queue,"
        " and a call may hang before that"
    )
    return Sentences(
        f"{who(frame.ranks, ranks)} {tense.has(ranks)} not entered"
        f" {_missed_text(detail.missed)} in time; {folded(finding.victims)} {gave_up_text(first)}",
        why,
        f"read the end of rank {ranks[0]}'s own output",
        (*seen, *_texts(detail.deaths[:4])),
        (missing,) if open_calls and detail.missed.number else (),
    )


def _why_late(view: Rank) -> tuple[Why, tuple[str, ...]]:
    """Why a rank was late, and what shows it: a stack from before the end, as files have it."""
    ended = "torch's own timeout (watchdog timeout) ended the job"
    state = stack_state(view) if view.evidence.has_stacks and not view.evidence.has_ages else None
    if state is None:
        return Why.of("unknown", f"{ended}; why the rank was late was not seen"), ()
    absence = absence_of(view, 0)
    if state.activity == "inside" or absence.why.cause == "unknown":
        stack = working_stack(view)
        at = f" at {line_and_function(user_frame(stack.frames))}" if stack is not None else ""
        place = f"in a call of torch.distributed{at}" if state.activity == "inside" else at[1:]
        return Why.of("unknown", f"{ended}; by its stack, the rank was {place}"), ()
    return absence.why, absence.evidence


def _texts(deaths: Sequence[Death]) -> tuple[str, ...]:
    return tuple(f"rank {death.rank}: {death.text}" for death in deaths)


def _missed_text(missed: MissedOp) -> str:
    number = f" #{missed.number}" if missed.number else ""  # messages have none
    return f"{missed.kind}{number} of {label_of(missed.group)}"


def _why_and_step(death: Death, view: Rank) -> tuple[Why, str]:
    layer: Layer = "software"
    text, step = death.text, f"read the end of rank {death.rank}'s own output"
    if death.cause == INTERRUPTED:
        layer, text = "unknown", f"{text}: somebody pressed it, or sent SIGINT"
        step = "nothing to look at in the code: it was ended on purpose"
    elif death.cause == "signal" and death.crashed:
        text = f"ended by {text}: a crash in native code, or an abort"
        if death.nature == "abort":
            step += ": an abort says why there"
        else:
            step += "; `python -X faulthandler` prints the stack of a crash"
    elif death.cause == "signal":  # a program seldom sends itself one
        layer, text = "unknown", f"ended by {text}; nothing seen here says who sent it"
        step = f"on {view.host}: dmesg | tail; who sent it: the scheduler, an operator, the kernel?"
    elif death.cause == "exit_status":
        text = f"it ended with {text}; no exception was seen"
    elif death.cause == "oom":
        step = f"use less memory per rank on {view.host}, or raise its limit: dmesg | grep -i oom"
    elif death.cause == "unknown":
        layer = "unknown"
    elif death.cause == "exception" and view.exception is not None and view.exception.frames:
        step = f"look at {line_and_function(user_frame(view.exception.frames))}"
    return Why(death.cause, layer, text), step
