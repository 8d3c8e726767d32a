"""Waits for members that nobody observes.

They never reported, no longer report, or wait in a transport past c10d.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from frtop_tui.diagnosis.cases.context import Context
from frtop_tui.diagnosis.cases.stuck.dead_links import DeadLinks, dead_links
from frtop_tui.diagnosis.cases.stuck.rendezvous import LOOPBACK
from frtop_tui.diagnosis.finding import Detail, Finding, facts_of
from frtop_tui.diagnosis.graph.wait_node import WaitNode
from frtop_tui.job.model import Rank


class NeverJoined(Detail, frozen=True):
    """Ranks of the world that never appeared while others start."""

    node: WaitNode
    members_unknown: bool
    on_reporting_hosts: bool


class Unobserved(Detail, frozen=True):
    """Every absent member of a node is unobserved: it may be any of them, or none."""

    node: WaitNode
    links: DeadLinks | None


def _is_unseen(context: Context, node: WaitNode) -> bool:
    """Whether any of them is not seen at all; else all live, beside unobserved transports."""
    views = context.ranks
    return any(rank not in views or views[rank].state == "unreachable" for rank in node.unobserved)


def find(context: Context, node: WaitNode) -> Finding:
    """The finding on a node whose absent members are all unobserved."""
    never = tuple(rank for rank in node.unobserved if rank not in context.ranks)
    if not (node.op.pseudo and never):
        return Finding(
            kind="undecided",
            detail=Unobserved(node, dead_links(context.ranks, node)),
            key=("unobserved", node.id),
            victims=frozenset(node.waiting),
            cause="unreachable" if _is_unseen(context, node) else "unobserved",
            progress="unknown",
            **facts_of([node], context.now_ns),
        )
    return Finding(
        kind="not_entered",
        detail=NeverJoined(
            node, not node.members_known, _belong_to_reporting_hosts(context.ranks, never)
        ),
        key=("never joined", node.id, never),
        culprits=never,
        victims=frozenset(node.waiting).difference(never),
        cause="never_joined",
        progress="unknown",
        **facts_of([node], context.now_ns),
    )


def _belong_to_reporting_hosts(views: Mapping[int, Rank], never: Sequence[int]) -> bool:
    """Whether ranks that never appeared would run on reporting hosts, by the ranks around them.

    Other ranks may run where no agent is connected: their silence means little.
    """
    if all(view.identity.job.master_addr in LOOPBACK for view in views.values()):
        return True
    spans: dict[str, tuple[int, int]] = {}
    for rank, view in views.items():
        first, last = spans.get(view.host, (rank, rank))
        begin = rank - max(0, view.identity.local_rank)
        spans[view.host] = (min(first, begin), max(last, rank))
    return all(any(first <= rank <= last for first, last in spans.values()) for rank in never)
