"""Where waits end: each overdue wait that nothing else explains is followed to its end.

It ends at ranks that are free to go on, at an op that all members have entered, or at unobserved
members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from frtop_tui.diagnosis.blocked.group_frontier import local_group_id
from frtop_tui.diagnosis.blocked.wait import patience_ns
from frtop_tui.diagnosis.cases.context import Context
from frtop_tui.diagnosis.cases.not_entered import detect as not_entered
from frtop_tui.diagnosis.cases.not_entered.detect import withhold
from frtop_tui.diagnosis.cases.stuck import detect as stuck
from frtop_tui.diagnosis.cases.unobserved.detect import is_unobserved
from frtop_tui.diagnosis.causes import Cause
from frtop_tui.diagnosis.evidence.absence_cause import absence_cause
from frtop_tui.diagnosis.evidence.progress import progress_of
from frtop_tui.diagnosis.finding import Finding
from frtop_tui.diagnosis.graph.messages import answers
from frtop_tui.diagnosis.graph.wait_node import WaitNode
from frtop_tui.diagnosis.thresholds import HOST_SKEW_NS, MOST_ROOTS
from frtop_tui.job.model import Rank

_SHARED: Final = frozenset[Cause]({"store", "rendezvous", "idle", "socket", "other_group"})
"""Causes of absence for which the waiting ranks may be to blame themselves."""


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
        late = [rank for rank in absent if _had_time(context, node, rank)]
        if absent and not late:
            continue
        absent = late
        if absent and node.by_elimination and not _is_held(context, absent):
            if (doubted := _stuck_for_long(context, node)) is not None:
                found[node.id] = doubted
        elif absent:
            assigned |= set(absent)
            found.update((one.culprits, one) for one in not_entered.find(context, node, absent))
        elif node not in stopped and (finding := _without_absentees(context, node)) is not None:
            # Several nodes may lead to the same ranks in the same op.
            blamed = (finding.culprits, finding.group, finding.op)
            found[blamed if finding.culprits else node.id] = finding
    return withhold(context, [*found.values()])


def _had_time(context: Context, node: WaitNode, rank: int) -> bool:
    """Whether a rank has been absent for unusually long since its own last wait ended."""
    released_ns = context.released.get(rank)
    if released_ns is None or context.ranks[rank].state == "stopped":
        return True
    return not 0 <= context.now_ns - released_ns <= patience_ns(node.op, node.group)


def _is_held(context: Context, ranks: Sequence[int]) -> bool:
    """Whether ranks that all others wait for surely make no progress, for reasons of their own."""
    views = [context.ranks[rank] for rank in ranks]
    return all(
        progress_of(view, context.now_ns).progress == "none"
        and absence_cause(view).cause not in _SHARED
        for view in views
    )


def _without_absentees(context: Context, node: WaitNode) -> Finding | None:
    """The finding on a node that no observed member is free to enter."""
    if node.entered_by_all:
        if is_unobserved(context, node):
            return None
        return _stuck_for_long(context, node)
    if node.unobserved and not node.free and not node.blocked_at:
        return not_entered.find_never_joined(context, node) or stuck.find_unobserved(context, node)
    return None


def _stuck_for_long(context: Context, node: WaitNode) -> Finding | None:
    """The finding on an op that all have entered; waiting before that does not count."""
    waited_ns = context.now_ns - _last_entry_ns(context.ranks, node)
    is_long = node.undated or waited_ns > patience_ns(node.op, node.group)
    return stuck.find(context, node) if is_long else None


def _last_entry_ns(views: Mapping[int, Rank], node: WaitNode) -> int:
    """When a member last entered `node` or issued more in its group, on the operator's clock."""
    last = max(wait.since_ns for wait in node.waits)
    group = node.group
    if group is None or node.op.pseudo:
        return last
    members = [*node.members]
    if node.op.p2p:
        peer = views.get(node.peer) if node.peer is not None else None
        # The peer's half, if that is still pending.
        halves = [op for op in peer.pending if answers(op, node)] if peer else []
        last = max([last, *(op.issued_ns + peer.clock_ns for op in halves if peer)])
        # Fronts are reported before pending ops and counts: a rank that issued more is not blocked.
        members = [node.waits[0].rank]
        if node.peer is not None and node.op.message and not node.answered:
            members.append(node.peer)
    for view in (views[rank] for rank in members if rank in views):
        number = local_group_id(view, group)
        front = view.group_progress.get(number) if number is not None else None
        if front is not None and front.issued_ns:
            last = max(last, front.issued_ns + view.clock_ns)
    return last


def _waiting_for_stopped(context: Context) -> list[WaitNode]:
    """Nodes that wait for a stopped process, which needs no patience."""
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
