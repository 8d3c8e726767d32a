"""Which send meets which receive."""

from __future__ import annotations

from frtop_probe import wire
from frtop_tui.diagnosis.graph.wait_node import WaitNode


def answers(other: wire.Op, node: WaitNode) -> bool:
    """Whether a pending op of the peer is the other half of the op at `node`."""
    if other.signature is None or not other.p2p:
        return False
    opposite = ("recv" in node.kind) != ("recv" in other.signature.kind)
    mine = other.signature.peer in (node.waits[0].rank, None)
    return opposite and mine and not tags_differ(node, other)


def tags_differ(node: WaitNode, other: wire.Op) -> bool:
    """Whether a send and a receive never meet because their tags differ; NCCL has no tags."""
    mine, theirs = node.op.signature, other.signature
    if mine is None or theirs is None or node.group is None or "nccl" in node.group.backend:
        return False
    return None not in (mine.tag, theirs.tag) and mine.tag != theirs.tag
