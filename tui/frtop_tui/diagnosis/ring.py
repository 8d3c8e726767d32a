"""Ranks that wait for each other in a circle: what is said of them, and who is the odd one."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.certainty import members_known
from frtop_tui.diagnosis.judged import OpName, Verdict, Why
from frtop_tui.diagnosis.phrases import group_key, op_text, wait_evidence
from frtop_tui.diagnosis.point import Point
from frtop_tui.diagnosis.points import tags_differ
from frtop_tui.diagnosis.verdict import doubted
from frtop_tui.job.model import ObservedFrame
from frtop_tui.job.naming import folded


def is_early(ring: Sequence[Point], now_ns: int) -> bool:
    """Whether it may be none: who makes a group without the others takes its time."""
    unsure = (point for point in ring if not members_known(point))
    return any(point.begins_ns("ripe", now_ns) >= now_ns for point in unsure)


def cycle(frame: ObservedFrame, ring: Sequence[Point]) -> Verdict:
    """The verdict; with something `missing` where nobody can say who has to come."""
    sides = sorted(((tuple(sorted(p.waiting)), p) for p in ring), key=lambda side: side[0])
    waits = [f"{folded(ranks)} in {op_text(point)}" for ranks, point in sides]
    messages = any(point.op.p2p for point in ring)
    odd = _odd_side(ring)
    tags = _tags(frame, ring)
    order = tags or (
        "sends and receives meet in the wrong order"
        if messages
        else "groups are used in different orders"
    )
    more = f"; of those that both need, only {folded(odd)} went elsewhere" if odd else ""
    made = Verdict(
        kind="cycle",
        confidence="suspect",
        progress="none",
        culprits=odd,
        parties=tuple(ranks for ranks, _ in sides),
        headline=f"they wait for each other: {', '.join(waits[:3])}",
        why=Why("cycle", "software", f"each needs the other first: {order}{more}"),
        next=_pair_step(tags) if messages else _order_step(odd, sides[0][0], sides[-1][0]),
        victims=fold(rank for ranks, _ in sides for rank in ranks if rank not in odd),
        group=group_key(sides[0][1].group),
        op=OpName(sides[0][1].kind, sides[0][1].number),
        since_ns=min(point.told_since_ns for point in ring),
        left_s=min((s for p in ring if (s := p.left_s(frame.now_ns)) is not None), default=None),
        evidence=tuple(line for p in ring[:4] for line in wait_evidence(p, frame.now_ns)),
    )
    guessed = _guessed(ring)
    if guessed is not None:
        text = f"{folded(guessed.waiting)} may wait in something else: no stack says where"
        if not guessed.op.p2p:
            text = f"{folded(guessed.waiting)} may wait for another thread than the one in the op"
        made = replace(made, missing=(text,))
    unsure = next((point for point in ring if not members_known(point)), None)
    return made if unsure is None else doubted(made, unsure)


def _guessed(ring: Sequence[Point]) -> Point | None:
    """Where somebody in the circle is not known to sit.

    A message may be posted early, and another thread's op need not be what the main one,
    which waits for some thread or other, waits for.
    """
    awaited: dict[Point, set[int]] = {}
    for point in ring:
        for rank, at in point.onward.items():
            awaited.setdefault(at, set()).add(rank)
    for point in ring:
        sides = [wait for wait in point.waits if wait.rank in awaited.get(point, ())]
        guess = point.op.p2p or all(wait.behind for wait in sides)
        if guess and sides and not any(wait.sure for wait in sides):
            return point
    return None


def _odd_side(ring: Sequence[Point]) -> tuple[int, ...]:
    """Who is elsewhere, if most are at one point.

    Only where each of the points needs all of them: otherwise it is no matter of numbers.
    """
    sides = sorted((frozenset(point.waiting) for point in ring), key=len)
    most, rest = sides[-1], frozenset[int]().union(*sides[:-1])
    everybody = most | rest
    needed = not any(point.op.p2p or everybody.difference(point.members) for point in ring)
    return tuple(sorted(rest)) if needed and len(most) > len(rest) else ()


def _tags(frame: ObservedFrame, ring: Sequence[Point]) -> str:
    """What is wrong between a send and a receive that would meet but for their tags."""
    for point in ring:
        into, receiver = point.op.signature, point.waits[0].rank
        view = frame.ranks.get(into.peer) if into is not None and into.peer is not None else None
        if into is None or view is None or "recv" not in into.kind:
            continue
        for op in view.pending:
            out = op.signature
            meet = out is not None and "send" in out.kind and out.peer == receiver
            if meet and out is not None and tags_differ(point, op):
                return (
                    f"rank {view.rank} sends with tag {out.tag} what"
                    f" rank {receiver} receives with tag {into.tag}"
                )
    return ""


def _pair_step(tags: str) -> str:
    if tags:
        return "give a send and its receive the same tag"
    return "pair each send with a receive: on one of them the other first, or batch_isend_irecv"


def _order_step(odd: Sequence[int], first: Sequence[int], last: Sequence[int]) -> str:
    if not odd:
        return "use these groups in the same order on all of their ranks"
    most = first if odd[0] in last else last
    return (
        f"compare the calls of rank {odd[0]} with those of rank {most[0]}: one left out, one too"
        " many, or another order"
    )
