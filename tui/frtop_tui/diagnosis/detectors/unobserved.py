"""Waits for members that nobody observes.

They were never heard of, are not heard any more, or wait in a transport past c10d.
"""

from __future__ import annotations

from frtop_tui.diagnosis.detectors.certainty import belong_to_heard_hosts, members_known
from frtop_tui.diagnosis.detectors.context import Context
from frtop_tui.diagnosis.detectors.stuck.dead_links import DeadLinks, dead_links
from frtop_tui.diagnosis.finding import Detail, Finding, facts_of
from frtop_tui.diagnosis.graph.wait_node import WaitNode


class NeverJoined(Detail, frozen=True):
    """Ranks of the world that never appeared while others start."""

    node: WaitNode
    members_unknown: bool
    on_heard_hosts: bool


class Unobserved(Detail, frozen=True):
    """Every absent member of a node is unobserved: it may be any of them, or none."""

    node: WaitNode
    links: DeadLinks | None


def _is_unseen(context: Context, node: WaitNode) -> bool:
    """Whether any of them is not seen at all; else all live, beside unobserved transports."""
    views = context.ranks
    return any(rank not in views or views[rank].state == "unheard" for rank in node.unobserved)


def find(context: Context, node: WaitNode) -> Finding:
    """The finding on a node whose absent members are all unobserved."""
    never = tuple(rank for rank in node.unobserved if rank not in context.ranks)
    if not (node.op.pseudo and never):
        return Finding(
            kind="undecided",
            detail=Unobserved(node, dead_links(context.ranks, node)),
            key=("unobserved", node.id),
            victims=frozenset(node.waiting),
            cause="unheard" if _is_unseen(context, node) else "unobserved",
            progress="unknown",
            **facts_of([node], context.now_ns),
        )
    return Finding(
        kind="not_entered",
        detail=NeverJoined(
            node, not members_known(node), belong_to_heard_hosts(context.ranks, never)
        ),
        key=("never joined", node.id, never),
        culprits=never,
        victims=frozenset(node.waiting).difference(never),
        cause="never_joined",
        progress="unknown",
        **facts_of([node], context.now_ns),
    )
