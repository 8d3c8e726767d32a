"""Ranks that wait for each other in a ring of waits."""

from __future__ import annotations

from collections.abc import Sequence

from frtop_tui.diagnosis.detectors.certainty import members_known
from frtop_tui.diagnosis.detectors.context import Context
from frtop_tui.diagnosis.finding import Detail, Finding, group_key, op_of
from frtop_tui.diagnosis.graph.messages import tags_differ
from frtop_tui.diagnosis.graph.wait_node import WaitNode


class TagsDiffer(Detail, frozen=True):
    """A send and a receive that would meet but for their tags."""

    sender: int
    sent: int
    receiver: int
    received: int


class Deadlock(Detail, frozen=True):
    """A ring of waits, and what is uncertain about it.

    Attributes:
        sides: ranks and the node where they wait, by rank.
        ring: the same nodes in order of the ring.
        odd: those that went elsewhere, where each op needs everybody.
        tags: why a message of the ring is not delivered.
        uncertain: a node where a rank of the ring may not sit at all.
        members_unknown: a node of which nobody knows who has to come.
    """

    sides: tuple[tuple[tuple[int, ...], WaitNode], ...]
    ring: tuple[WaitNode, ...]
    odd: tuple[int, ...] = ()
    tags: TagsDiffer | None = None
    uncertain: WaitNode | None = None
    members_unknown: WaitNode | None = None


def detect(context: Context) -> list[Finding]:
    """One finding for each ring, however unusual: its ranks will not stop waiting."""
    settled = context.graph.settled(context.now_ns)
    candidates = [node for node in settled if node not in context.explained]
    rings = context.graph.cycles(candidates)
    context.explained.update(node for ring in rings for node in ring)
    return [
        _finding(context, ring)
        for ring in rings
        # Too early: who makes a group before the others come takes time.
        if not any(
            node.begins_ns("overdue", context.now_ns) >= context.now_ns
            for node in ring
            if not members_known(node)
        )
    ]


def _finding(context: Context, ring: Sequence[WaitNode]) -> Finding:
    sides = sorted(((tuple(sorted(n.waiting)), n) for n in ring), key=lambda side: side[0])
    odd = _odd_side(ring)
    first = sides[0][1]
    left = [s for node in ring if (s := node.left_s(context.now_ns)) is not None]
    return Finding(
        kind="cycle",
        detail=Deadlock(
            tuple(sides),
            tuple(ring),
            odd,
            _tags(context, ring),
            _uncertain(ring),
            next((node for node in ring if not members_known(node)), None),
        ),
        key=("cycle", frozenset(node.id for node in ring)),
        culprits=odd,
        victims=frozenset(rank for ranks, _ in sides for rank in ranks if rank not in odd),
        parties=tuple(ranks for ranks, _ in sides),
        cause="cycle",
        group=group_key(first.group),
        op=op_of(first),
        nodes=tuple(ring),
        since_ns=min(node.known_since_ns for node in ring),
        left_s=min(left, default=None),
    )


def _uncertain(ring: Sequence[WaitNode]) -> WaitNode | None:
    """A node where a rank of the ring may not sit at all.

    A message may be posted early. The main thread, which waits for some other thread, need not
    wait for the one that sits in the op. And a host need not stand behind its device.
    """
    awaited: dict[WaitNode, set[int]] = {}
    for node in ring:
        for rank, elsewhere in node.blocked_at.items():
            awaited.setdefault(elsewhere, set()).add(rank)
    for node in ring:
        sides = [wait for wait in node.waits if wait.rank in awaited.get(node, ())]
        guess = node.op.p2p or all(wait.indirect or wait.by_device for wait in sides)
        if guess and sides and not any(wait.sure for wait in sides):
            return node
    return None


def _odd_side(ring: Sequence[WaitNode]) -> tuple[int, ...]:
    """Who is elsewhere while most are at one node, where each node needs all of them."""
    sides = sorted((frozenset(node.waiting) for node in ring), key=len)
    most, rest = sides[-1], frozenset[int]().union(*sides[:-1])
    everybody = most | rest
    needed = not any(node.op.p2p or everybody.difference(node.members) for node in ring)
    return tuple(sorted(rest)) if needed and len(most) > len(rest) else ()


def _tags(context: Context, ring: Sequence[WaitNode]) -> TagsDiffer | None:
    for node in ring:
        into, receiver = node.op.signature, node.waits[0].rank
        if into is None or into.peer is None or "recv" not in into.kind:
            continue
        sender = context.frame.ranks.get(into.peer)
        for op in sender.pending if sender is not None else ():
            out = op.signature
            meets = out is not None and "send" in out.kind and out.peer == receiver
            if meets and out is not None and tags_differ(node, op):
                assert out.tag is not None
                assert into.tag is not None
                return TagsDiffer(into.peer, out.tag, receiver, into.tag)
    return None
