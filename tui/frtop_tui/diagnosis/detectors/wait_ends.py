"""Where waits end: each overdue wait that nothing else explains is followed to its end.

It ends at ranks that are free to go on, at an op that every member has entered, or at members
that nobody observes.
"""

from __future__ import annotations

from frtop_tui.diagnosis.detectors import not_entered, unobserved
from frtop_tui.diagnosis.detectors.context import Context
from frtop_tui.diagnosis.detectors.stuck import stuck
from frtop_tui.diagnosis.detectors.stuck.last_entry import entered_recently
from frtop_tui.diagnosis.detectors.withheld import withhold
from frtop_tui.diagnosis.finding import Finding
from frtop_tui.diagnosis.graph.wait_node import WaitNode
from frtop_tui.diagnosis.thresholds import HOST_SKEW_NS, MOST_ROOTS


def detect(context: Context) -> list[Finding]:
    """Findings for at most `MOST_ROOTS` ends."""
    found: dict[object, Finding] = {}
    assigned: set[int] = set()
    stopped = _waiting_for_stopped(context)
    for node in [*context.graph.endpoints(context.overdue), *stopped]:
        if node in context.explained or node.ended:
            continue
        if len(found) >= MOST_ROOTS:
            break
        absent = [rank for rank in node.free if rank not in assigned]
        if node in stopped:
            absent = [rank for rank in absent if context.ranks[rank].state == "stopped"]
        if absent:
            assigned |= set(absent)
            found.update((one.culprits, one) for one in not_entered.find(context, node, absent))
        elif node not in stopped and (finding := _without_absentees(context, node)) is not None:
            found[_identity(finding, node)] = finding
    return withhold(context, [*found.values()])


def _without_absentees(context: Context, node: WaitNode) -> Finding | None:
    """The finding on a node of which no observed member is free to enter it."""
    if node.entered_by_all:
        recent = entered_recently(context.ranks, node, context.now_ns)
        return None if recent else stuck.find(context, node)
    if node.unobserved and not node.free and not node.blocked_at:
        return unobserved.find(context, node)
    return None


def _identity(finding: Finding, node: WaitNode) -> object:
    """Equal for findings that blame the same ranks for the same op, seen from several nodes."""
    return (finding.culprits, finding.group, finding.op) if finding.culprits else node.id


def _waiting_for_stopped(context: Context) -> list[WaitNode]:
    """Nodes that wait for a stopped process: no patience is needed to say so."""
    stopped = [
        rank
        for rank in context.index.states["stopped"]
        # Not one that a tracer stops for a moment.
        if context.now_ns - context.ranks[rank].state_since_ns >= HOST_SKEW_NS
    ]
    if not stopped:
        return []
    return [
        node
        for node in context.awaiting(stopped)
        if node not in context.overdue and context.now_ns - node.since_ns >= HOST_SKEW_NS
    ]
