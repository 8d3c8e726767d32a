"""The trace of a judgement: what each stage found, in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.blocked.ops_by_stack import is_by_stack
from frtop_tui.diagnosis.blocked.wait import Wait
from frtop_tui.diagnosis.cases.context import Context
from frtop_tui.diagnosis.cases.mismatch.compare import Party
from frtop_tui.diagnosis.cases.mismatch.words import call_text
from frtop_tui.diagnosis.cases.not_entered.detect import NotEntered
from frtop_tui.diagnosis.finding import Finding
from frtop_tui.diagnosis.graph.wait_node import WaitNode
from frtop_tui.diagnosis.model import (
    BlockedRanks,
    Edge,
    FindingTrace,
    LeftOut,
    NodeTrace,
    Trace,
)
from frtop_tui.diagnosis.words.phrases import message_doubt, named_op, op_text

MOST_LISTED: Final = 64
"""Lines of each list, the most important first."""

_WHO_ENTERS: Final = "no stack shows which ranks have to enter it"
_SIGNS: Final[tuple[tuple[Callable[[Wait], bool], str], ...]] = (
    (lambda wait: wait.rpc is not None, "its stack waits for the answer to a remote call"),
    (lambda wait: wait.call is not None, "its stack is inside the call, or in a wait"),
    (lambda wait: wait.undated and not wait.op.sync, "its dump lists the op as unfinished"),
    (lambda wait: is_by_stack(wait.op), "its stack is inside the call"),
    (lambda wait: wait.op.pseudo, "it is inside the call"),
    (lambda wait: wait.indirect, "its main thread waits for a thread that is in the op"),
    (lambda wait: wait.by_device, "its device is in the op; whether its host waits is not known"),
    (
        lambda wait: wait.background,
        "a thread other than the main one waits in the op: the rank itself is free",
    ),
    (lambda wait: not wait.op.tracked, "its stack waits for a device: taken as in its last op"),
    (
        lambda wait: wait.op.sync,
        "issued synchronously, and its thread has issued nothing since",
    ),
    (
        lambda wait: wait.sure,
        "its main thread's stack is in a wait: taken as in the oldest pending op",
    ),
    (
        lambda _: True,
        "the kernel alone: its main thread is asleep in a futex, with ops pending",
    ),
)
"""The first sign that applies counts."""


def trace_of(
    context: Context,
    findings: Sequence[Finding],
    reason: Callable[[Finding], str],
    most_nodes: int = MOST_LISTED,
) -> Trace:
    """What each stage found; `reason` says why a finding is confirmed or not."""
    followed = dict.fromkeys(context.overdue)  # overdue nodes and those they lead to come first
    others = (node for node in context.graph.all.values() if node not in followed)
    nodes = [*followed, *sorted(others, key=lambda node: node.since_ns)]
    blocked = [line for node in nodes[:MOST_LISTED] for line in _blocked(node, context)]
    more_blocked = max(0, len(blocked) - MOST_LISTED) + max(0, len(nodes) - MOST_LISTED)
    shown = nodes[:most_nodes]
    places = {node: place for place, node in enumerate(shown)}
    return Trace(
        tuple(blocked[:MOST_LISTED]),
        tuple(_node(node, context, places) for node in shown),
        tuple(_finding(finding, reason(finding)) for finding in findings),
        more_blocked,
        max(0, len(nodes) - most_nodes),
    )


def _blocked(node: WaitNode, context: Context) -> list[BlockedRanks]:
    differ = bool(_parties(node, context))
    signs: dict[tuple[str, str], list[Wait]] = {}
    for wait in node.waits:
        sign = next(text for applies, text in _SIGNS if applies(wait))
        op = named_op(wait.op, node.group) if differ else op_text(node)
        signs.setdefault((op, sign), []).append(wait)
    lines = []
    for (op, sign), waits in signs.items():
        known = [wait for wait in waits if not wait.undated]
        oldest = min(known, key=lambda wait: wait.since_ns, default=None)
        seconds = round((context.now_ns - oldest.since_ns) / 1e9, 1) if oldest is not None else None
        ranks, dated = fold(wait.rank for wait in waits), oldest is None or oldest.op.dated
        lines.append(BlockedRanks(ranks, op, sign, seconds, dated))
    return lines


def _node(node: WaitNode, context: Context, places: Mapping[WaitNode, int]) -> NodeTrace:
    context.graph.look_into(node, context.now_ns)
    edges: dict[WaitNode, list[int]] = {}
    for rank, elsewhere in node.blocked_at.items():
        edges.setdefault(elsewhere, []).append(rank)
    parties = _parties(node, context)
    return NodeTrace(
        named_op(parties[0].op, node.group) if parties else op_text(node),
        fold(node.waiting),
        node in context.overdue,
        fold(node.free),
        fold(node.ended),
        fold(node.unobserved),
        tuple(
            Edge(fold(ranks), op_text(elsewhere), places.get(elsewhere, -1))
            for elsewhere, ranks in edges.items()
        ),
        round((context.now_ns - node.known_since_ns) / 1e9, 1) if node.known_since_ns else None,
        _who_enters(node),
        node.by_elimination,
        tuple(Edge(fold(party.ranks), call_text(party.op)) for party in parties[1:]),
    )


def _parties(node: WaitNode, context: Context) -> tuple[Party, ...]:
    """If the node's members made different calls at its number: who made which, most first."""
    for one in context.mismatches:
        here = one.number == node.number and one.explains(node.group, node.number)
        if here and not one.unpaired:
            return one.parties
    return ()


def _who_enters(node: WaitNode) -> str:
    """For a node that all members have entered: what is not known about its members."""
    if node.call is not None and node.peer is None:
        return _WHO_ENTERS
    return message_doubt(node) if node.op.p2p else ""


def _finding(finding: Finding, reason: str) -> FindingTrace:
    return FindingTrace(
        finding.kind,
        finding.cause,
        finding.progress,
        fold(finding.culprits),
        fold(finding.victims),
        reason,
        tuple(op_text(node) for node in finding.nodes[:MOST_LISTED]),
        _left_out(finding),
    )


def _left_out(finding: Finding) -> tuple[LeftOut, ...]:
    if not isinstance(finding.detail, NotEntered):
        return ()
    absentees = finding.detail.absentees
    others = [one for one in absentees.culprits if one.ranks != finding.culprits]
    rules = (
        (absentees.moving, "absent too, but it makes progress"),
        (absentees.held_back, "absent too, but a file lock or a store key holds it back"),
        (absentees.entering, "absent too, but its stack shows that it is entering the op"),
        (absentees.without_stack, "absent too, but no stack shows yet what it is doing"),
        (absentees.unknown, "absent too, but its progress is not known"),
        ([rank for one in others for rank in one.ranks], "absent for another cause"),
    )
    return tuple(LeftOut(fold(ranks), rule) for ranks, rule in rules if ranks)
