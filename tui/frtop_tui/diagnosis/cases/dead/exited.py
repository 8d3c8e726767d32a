"""Ranks that left the program cleanly while others still need them."""

from __future__ import annotations

from collections.abc import Sequence

from frtop_tui.diagnosis.cases.context import Context
from frtop_tui.diagnosis.cases.dead.laggards import MissedOp
from frtop_tui.diagnosis.evidence.death import ended_ns
from frtop_tui.diagnosis.finding import Detail, Finding, group_key, op_of
from frtop_tui.diagnosis.graph.wait_node import WaitNode
from frtop_tui.diagnosis.model import OpName
from frtop_tui.diagnosis.thresholds import HOST_SKEW_NS


class Exited(Detail, frozen=True):
    """Ranks that left. `victims` wait at `node`, or failed in the op that `ranks` missed."""

    ranks: tuple[int, ...]
    victims: frozenset[int]
    node: WaitNode | None
    missed: MissedOp | None


def detect(context: Context) -> list[Finding]:
    """One finding for each set of ranks that left and are waited for."""
    done = context.index.states["done"]
    if not done:
        return []
    found: dict[tuple[int, ...], tuple[list[WaitNode], set[int]]] = {}
    for node in context.awaiting(done):
        gone = tuple(rank for rank in node.ended if context.ranks[rank].state == "done")
        settled = context.now_ns - node.since_ns >= HOST_SKEW_NS
        # A receive that no thread sits in may never complete, and means nothing.
        left_over = node.op.p2p and not any(wait.sure for wait in node.waits)
        if not gone or not settled or left_over or node in context.explained:
            continue
        nodes, victims = found.setdefault(gone, ([], set()))
        nodes.append(node)
        victims |= set(node.waiting)
    return [exited(context, gone, victims, nodes) for gone, (nodes, victims) in found.items()]


def exited(
    context: Context,
    ranks: Sequence[int],
    victims: set[int],
    nodes: Sequence[WaitNode],
    missed: MissedOp | None = None,
) -> Finding:
    """The finding on `ranks` that left: blamed, unless they are more than those who need them."""
    node, op, group = None, None, None
    if nodes:
        node, op, group = nodes[0], op_of(nodes[0]), nodes[0].group
    elif missed is not None:
        op, group = OpName(missed.kind, missed.number or None), missed.group
    many = len(ranks) > len(victims)
    return Finding(
        kind="dead",
        detail=Exited(tuple(ranks), frozenset(victims), node, missed),
        key=("exited", tuple(ranks)),
        culprits=() if many else tuple(ranks),
        victims=frozenset(victims),
        parties=(tuple(sorted(victims)), tuple(ranks)) if many else (),
        cause="exited",
        group=group_key(group),
        op=op,
        issuer=node.op.issuer if node is not None else None,
        nodes=tuple(nodes),
        since_ns=min(ended_ns(context.ranks[rank]) for rank in ranks),
        left_s=node.left_s(context.now_ns) if node is not None else None,
    )
