"""A deadlock: ranks that wait for each other, directly or through others.

`deadlocks` in `diagnosis/graph/wait_graph.py` finds them; what is said of them is here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from frtop_tui.diagnosis.cases.context import Context
from frtop_tui.diagnosis.cases.declare import Case, Kind, Rule
from frtop_tui.diagnosis.finding import Detail, Finding, group_key, op_of
from frtop_tui.diagnosis.graph.messages import tags_differ
from frtop_tui.diagnosis.graph.wait_node import WaitNode, soonest_left_s
from frtop_tui.diagnosis.model import Sentences, Why
from frtop_tui.diagnosis.words.phrases import (
    PAIR_MESSAGES,
    WRONG_ORDER,
    Tense,
    callers_unknown,
    op_text,
    wait_evidence,
)
from frtop_tui.job.model import BaseFrame
from frtop_tui.job.naming import folded


class TagsDiffer(Detail, frozen=True):
    """A send and a receive that do not meet because of their tags."""

    sender: int
    sent: int
    receiver: int
    received: int


class Deadlock(Detail, frozen=True):
    """Ranks that wait for each other, and what is uncertain about it."""

    sides: tuple[tuple[tuple[int, ...], WaitNode], ...]  # ranks and where they wait, by rank
    nodes: tuple[WaitNode, ...]  # the same nodes, each waiting for the next
    odd: tuple[int, ...] = ()  # ranks that went elsewhere, if each op needs all of them
    tags: TagsDiffer | None = None  # why a message between them is not delivered
    uncertain: WaitNode | None = None  # a node where a rank may not be blocked
    members_unknown: WaitNode | None = None  # it is not known which ranks have to enter it


def detect(context: Context) -> list[Finding]:
    """One finding for each deadlock, however short: its ranks will not stop waiting."""
    settled = context.graph.settled(context.now_ns)
    candidates = [node for node in settled if node not in context.explained]
    found = context.graph.deadlocks(candidates)
    context.explained.update(node for nodes in found for node in nodes)
    return [
        _finding(context, nodes)
        for nodes in found
        # Too early: ranks may create a group long before the others arrive.
        if not any(
            node.begins_ns("overdue", context.now_ns) >= context.now_ns
            for node in nodes
            if not node.members_known
        )
    ]


def _finding(context: Context, nodes: Sequence[WaitNode]) -> Finding:
    sides = sorted(((tuple(sorted(n.waiting)), n) for n in nodes), key=lambda side: side[0])
    odd = _odd_side(nodes)
    first = sides[0][1]
    return Finding(
        kind="deadlock",
        detail=Deadlock(
            tuple(sides),
            tuple(nodes),
            odd,
            _tags(context, nodes),
            _uncertain(nodes),
            next((node for node in nodes if not node.members_known), None),
        ),
        key=("deadlock", frozenset(node.id for node in nodes)),
        culprits=odd,
        victims=frozenset(rank for ranks, _ in sides for rank in ranks if rank not in odd),
        parties=tuple(ranks for ranks, _ in sides),
        cause="deadlock",
        group=group_key(first.group),
        op=op_of(first),
        nodes=tuple(nodes),
        since_ns=min(node.known_since_ns for node in nodes),
        left_s=soonest_left_s(nodes, context.now_ns),
    )


def _uncertain(nodes: Sequence[WaitNode]) -> WaitNode | None:
    """A node where a rank may not be blocked.

    A message may be posted early. A main thread that waits for some other thread need not wait for
    the one in the op. And a host need not wait for its device.
    """
    awaited: dict[WaitNode, set[int]] = {}
    for node in nodes:
        for rank, elsewhere in node.blocked_at.items():
            awaited.setdefault(elsewhere, set()).add(rank)
    for node in nodes:
        sides = [wait for wait in node.waits if wait.rank in awaited.get(node, ())]
        guess = node.op.p2p or all(wait.indirect or wait.by_device for wait in sides)
        if guess and sides and not any(wait.sure for wait in sides):
            return node
    return None


def _odd_side(nodes: Sequence[WaitNode]) -> tuple[int, ...]:
    """The ranks elsewhere while most are at one node, if each node needs all of them."""
    sides = sorted((frozenset(node.waiting) for node in nodes), key=len)
    most, rest = sides[-1], frozenset[int]().union(*sides[:-1])
    everybody = most | rest
    needed = not any(node.op.p2p or everybody.difference(node.members) for node in nodes)
    return tuple(sorted(rest)) if needed and len(most) > len(rest) else ()


def _tags(context: Context, nodes: Sequence[WaitNode]) -> TagsDiffer | None:
    for node in nodes:
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


def deadlock(finding: Finding, detail: Deadlock, frame: BaseFrame, tense: Tense) -> Sentences:
    """Which ranks wait in what, and why that never ends."""
    waits = [f"{folded(ranks)} in {op_text(node)}" for ranks, node in detail.sides]
    odd, tags = finding.culprits, detail.tags
    why = "each needs the other first: groups are used in different orders"
    step = "use these groups in the same order on all of their ranks"
    if all(node.op.pseudo for node in detail.nodes):
        why = "each needs the other first: groups are created in different orders"
        step = "create these groups in the same order on all ranks"
    if tags is not None:
        why = (
            f"each needs the other first: rank {tags.sender} sends with tag {tags.sent} what"
            f" rank {tags.receiver} receives with tag {tags.received}"
        )
        step = "give a send and its receive the same tag"
    elif any(node.op.p2p for node in detail.nodes):
        why, step = WRONG_ORDER, PAIR_MESSAGES
    elif odd:
        first, last = detail.sides[0][0], detail.sides[-1][0]
        most = first if odd[0] in last else last
        step = (
            f"compare the calls of rank {odd[0]} with those of rank {most[0]}: a missing"
            " call, an extra one, or another order"
        )
    if odd:
        why += f"; of the ranks that both ops need, only {folded(odd)} went elsewhere"
    missing = []
    if detail.uncertain is not None:
        ranks = folded(detail.uncertain.waiting)
        text = f"{ranks} may wait in something else: no stack shows where"
        hosts = [wait.rank for wait in detail.uncertain.waits if wait.by_device]
        if hosts:
            text = f"the host of {folded(hosts)} may be working, not waiting for its device"
        elif not detail.uncertain.op.p2p:
            text = f"{ranks} may wait for a thread other than the one in the op"
        missing.append(text)
    if detail.members_unknown is not None:
        missing.append(callers_unknown(detail.members_unknown))
    return Sentences(
        f"{' and '.join(waits[:3])} {tense.of('wait', 'waited')} for each other: a deadlock",
        Why.of("deadlock", why),
        step,
        tuple(wait_evidence(node, frame) for node in detail.nodes[:4]),
        tuple(missing),
    )


def _has_unknowns(finding: Finding, _: Context) -> bool:
    assert isinstance(finding.detail, Deadlock)
    return bool(finding.detail.uncertain or finding.detail.members_unknown)


_RULE: Final = Rule("frames", (("one side of the deadlock is uncertain", _has_unknowns),))
DEADLOCK: Final = Case((Kind(Deadlock, deadlock, (_RULE,)),), detect)
