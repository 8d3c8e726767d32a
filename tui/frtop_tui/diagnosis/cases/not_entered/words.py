"""Words for ranks that have not entered an op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from frtop_tui.diagnosis.cases.not_entered.detect import NeverJoined, NotEntered, Withheld
from frtop_tui.diagnosis.cases.stacks_alone.words import stack_texts
from frtop_tui.diagnosis.cases.unobserved.words import missing_members, standing_evidence
from frtop_tui.diagnosis.evidence.program_end import program_end
from frtop_tui.diagnosis.evidence.progress import ProgressSeen
from frtop_tui.diagnosis.evidence.rpc_call import by_handler
from frtop_tui.diagnosis.evidence.working_thread import trains_beside
from frtop_tui.diagnosis.finding import Finding
from frtop_tui.diagnosis.graph.wait_node import RankSet, WaitNode, rank_set
from frtop_tui.diagnosis.model import Sentences, Why
from frtop_tui.diagnosis.thresholds import BUSY_NS
from frtop_tui.diagnosis.words.absence import Absence, absence_of, ending_step, ending_text
from frtop_tui.diagnosis.words.phrases import (
    OF_RPC,
    Tense,
    callers_unknown,
    chain_evidence,
    last_op_evidence,
    op_text,
    progress_text,
    wait_evidence,
    who,
)
from frtop_tui.job.model import BaseFrame, Rank
from frtop_tui.job.naming import folded
from frtop_tui.job.units import duration

_EARLY: Final = "why did its program end before the others'? Read the end of its output; then"


def not_entered(finding: Finding, detail: NotEntered, frame: BaseFrame, tense: Tense) -> Sentences:
    """Why the culprits are absent, which ranks wait for them, and which others are absent."""
    node, blamed, others = finding.nodes[0], detail.blamed, detail.absentees
    view = frame.ranks[blamed.example]
    absence = absence_of(by_handler(view) if node.rpc is not None else view, frame.now_ns)
    absence = _of_ended_program(view, absence)
    evidence = [
        wait_evidence(node, frame),
        *absence.evidence,
        progress_text(blamed.progress, finding.culprits),
    ]
    evidence += last_op_evidence(frame.ranks, finding.culprits)
    evidence += chain_evidence(finding.nodes)
    if others.moving:
        evidence.append(f"{folded(others.moving)} also absent, but making progress")
    if others.held_back:
        evidence.append(f"{folded(others.held_back)} also absent: held by a lock or a store key")
    if others.unknown:
        evidence.append(f"{folded(others.unknown)} also absent; progress unknown")
    if detail.busy_ns >= BUSY_NS:
        evidence.append(
            f"{folded(finding.culprits)} did other work for {duration(detail.busy_ns / 1e9)}"
            " after that wait began, and did not enter"
        )
    head, waiting = _headline(frame, node, finding.culprits, detail.waiting, tense)
    evidence += standing_evidence(frame.ranks, node)
    unknown = _missing(frame, node, members_unknown=detail.members_unknown)
    missing = (*absence.missing, *unknown)
    return Sentences(head, absence.why, absence.next, tuple(evidence), missing, waiting)


def _of_ended_program(view: Rank, absence: Absence) -> Absence:
    """`absence`, of a rank whose program is over: only its process stays."""
    end = program_end(view)
    if end is None or end.stage == "groups" or not end.sure or trains_beside(view):
        return absence
    text = ending_text(end, absence.why.text)
    step = f"{_EARLY} {ending_step(end, absence.next)}"
    return replace(absence, why=replace(absence.why, text=text), next=step)


def withheld(finding: Finding, detail: Withheld, frame: BaseFrame, tense: Tense) -> Sentences:
    """Which ranks are absent, and why none of them is named."""
    said = []
    for one in detail.findings:
        assert isinstance(one.detail, NotEntered)
        said.append(not_entered(one, one.detail, frame, tense))
    if detail.more_absent:
        absent, few = finding.parties
        head, evidence = said[0].headline, said[0].evidence
        text = (
            f"{folded(few)} may just as well be ahead, or in an op that the others need not"
            " enter: most of the group is absent, and nothing shows why"
        )
        step = f"compare the calls of rank {few[0]} with those of rank {absent[0]}; "
    else:
        named = folded({rank for one in detail.findings for rank in one.culprits})
        head = f"{named} have not entered what {folded(finding.victims)} wait for"
        evidence = tuple(one.headline for one in said)
        text = (
            f"any of {named} may be to blame: the others may wait in a send or receive, which"
            " gloo's Flight Recorder does not record"
        )
        step = f"look at the stacks of {named}: "
    return Sentences(
        f"{head}; {text}",
        Why.of("unknown", text),
        f"{step}py-spy dump --pid PID on their hosts",
        (*evidence, *stack_texts(frame.ranks.values())),
        said[0].missing,
    )


def never_joined(
    finding: Finding, detail: NeverJoined, frame: BaseFrame, tense: Tense
) -> Sentences:
    """Which ranks never appeared, and which wait for them."""
    node, never, named = detail.node, finding.culprits, folded(finding.culprits)
    text = (
        f"{named} never appeared: not started, dead before the first group, without the"
        " recorder, on a host that is not connected, or with another MASTER_ADDR or MASTER_PORT"
    )
    waiting = rank_set(node.waiting).without(never)
    step = "check whether these ranks were started: squeue, ps, their output"
    if node.kind == "init_rpc":
        text, step = f"{text}, or with another init_method of RPC", f"{step}; {OF_RPC}"
    head, waits = _headline(frame, node, never, waiting, tense)
    unreachable = progress_text(ProgressSeen("unknown", "never_reported"), never)
    return Sentences(
        head,
        Why.of(finding.cause, text),
        step,
        (wait_evidence(node, frame), unreachable),
        (f"{named} cannot be seen", *_missing(frame, node, members_unknown=detail.members_unknown)),
        waits,
    )


def _missing(frame: BaseFrame, node: WaitNode, *, members_unknown: bool) -> list[str]:
    missing = [*missing_members(frame.ranks, node)]
    if members_unknown:
        missing.append(callers_unknown(node))
    return missing


def _headline(
    frame: BaseFrame, node: WaitNode, culprits: Sequence[int], waiting: RankSet, tense: Tense
) -> tuple[str, str]:
    """The head, and its end: which ranks wait."""
    named = f"{who(frame.ranks, culprits)} {tense.has(culprits)} not"
    others = waiting.ranks.difference(node.waiting)
    more = f"; {tense.waits(others)} behind it" if others else ""
    if node.rpc is not None:
        return f"{named} answered; {tense.waits(node.waiting)} in {op_text(node)}{more}", ""
    if not node.op.p2p:
        return f"{named} entered {op_text(node)}", tense.set_waits(waiting)
    if node.by_elimination:
        named = f"{who(frame.ranks, culprits)} {tense.of('is', 'was')} the only rank in no op"
        return f"{named}; {tense.waits(waiting.ranks)} in sends and receives", ""
    answered = "sent" if "recv" in node.kind else "received"
    return f"{named} {answered}; {tense.waits(node.waiting)} in {op_text(node)}{more}", ""
