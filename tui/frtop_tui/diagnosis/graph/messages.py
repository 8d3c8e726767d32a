"""Sends and receives: whether the other half of one was issued.

The n-th receive of a rank from another one, in a group and with a tag, is for the n-th send.
Recorders count both. Without counts, as after a late start, a pending op of the peer may be the
other half or a leftover: gloo notes the end of a message only if a thread waits for it.
"""

from __future__ import annotations

from typing import Literal

from frtop_probe import wire
from frtop_probe.ring.layout import MESSAGES
from frtop_tui.diagnosis.blocked.group_frontier import local_group_id
from frtop_tui.diagnosis.graph.wait_node import WaitNode
from frtop_tui.job.model import Rank

Half = Literal[
    "issued",
    "missing",
    "open",  # enough were issued, but a receive from any source may have taken one
    "unknown",
]


def other_half(view: Rank, node: WaitNode, waiting: Rank) -> Half:
    """Whether the peer has issued the other half of a send or receive, by counts alone.

    `view` is the peer, `waiting` the rank that waits.
    """
    group, op, rank = node.group, node.op, node.waits[0].rank
    theirs = _messages_of(view, group) if group is not None and group.exact else None
    if group is None or theirs is None or not op.message:
        return "unknown"
    receives = node.kind != "send"
    tag = None if op.on_device or op.signature is None else op.signature.tag
    issued = _count(theirs, send=receives, peer=rank, tag=tag)
    if issued is None:
        return "unknown"
    receiver = _messages_of(waiting, group) if receives else theirs
    from_any = None if receiver is None else _count(receiver, send=False, peer=None, tag=tag)
    most = issued if receives else issued + (from_any or 0)
    if (most - op.message) % MESSAGES > MESSAGES // 2:  # too few
        return "missing" if receives or from_any is not None else "open"
    return "issued" if from_any == 0 else "open"


def answers(other: wire.Op, node: WaitNode) -> bool:
    """Whether a pending op of the peer may be the other half of the op at `node`."""
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


def _messages_of(view: Rank, group: wire.Group) -> wire.Messages | None:
    """The counts of a rank's messages in a group; None if not known."""
    own = local_group_id(view, group)
    progress = view.group_progress.get(own) if own is not None else None
    if own is None or not view.groups[own].exact or not view.evidence.has_every_op:
        return None
    if progress is None or not progress.p2p:
        return wire.Messages(own, 0, complete=True)
    return next((one for one in view.messages if one.group == own), None)


def _count(known: wire.Messages, *, send: bool, peer: int | None, tag: int | None) -> int | None:
    """The number of a channel's last message; None if not known."""
    found = (
        one.number for one in known.counts if (one.send, one.peer, one.tag) == (send, peer, tag)
    )
    return next(found, 0 if known.complete else None)
