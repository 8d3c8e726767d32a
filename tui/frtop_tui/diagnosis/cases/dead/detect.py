"""Ranks that died of a cause of their own, and jobs in which every death is a consequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from frtop_probe import wire
from frtop_tui.diagnosis.blocked.group_frontier import last_issued_number
from frtop_tui.diagnosis.cases.context import Context
from frtop_tui.diagnosis.cases.mismatch.detect import deaths_caused_by
from frtop_tui.diagnosis.evidence.death import Death, ended_ns
from frtop_tui.diagnosis.evidence.progress import ProgressSeen, progress_of
from frtop_tui.diagnosis.finding import Detail, Finding, group_key, op_of
from frtop_tui.diagnosis.graph.wait_node import WaitNode, kind_of
from frtop_tui.diagnosis.model import OpName
from frtop_tui.diagnosis.thresholds import HOST_SKEW_NS, RANKS_TELL_NS, RINGS_READ_NS
from frtop_tui.job.model import ObservedFrame, Rank


class MissedOp(NamedTuple):
    """An op that a rank did not enter in time; `number` is 0 for a message."""

    group: wire.Group
    kind: str
    number: int


def laggards(frame: ObservedFrame, victims: set[int]) -> dict[int, MissedOp]:
    """Reporting ranks that lag behind the victims in a shared group, and the op that they missed.

    A laggard in an op of another group only waited itself: those that lag behind it count.
    """
    found, waiting = _lagging(frame, victims), set(victims)
    while waited := {rank for rank in found if _sat_in_op(frame.ranks[rank])}:
        waiting |= waited
        further = _lagging(frame, waiting)
        if not further:
            break
        found = further
    return found


def _lagging(frame: ObservedFrame, victims: set[int]) -> dict[int, MissedOp]:
    views = frame.ranks
    found: dict[int, MissedOp] = {}
    for group in frame.groups:
        members = [rank for rank in group.members if rank in views]
        inside = [rank for rank in members if rank in victims]
        if not inside or not group.exact:
            continue
        groups = views[inside[0]].groups.values()
        known = next((one for one in groups if group_key(one) == group.key), None)
        if known is None:
            continue
        furthest = max(last_issued_number(views[rank], known) for rank in inside)
        kind = kind_of(group.last) if group.last is not None else "op"
        # A rank that does not report may have gone on since: its last number proves nothing.
        for rank in members:
            view = views[rank]
            numbered = view.state != "unreachable" and view.evidence.has_numbers
            if (
                rank not in victims
                and numbered
                and last_issued_number(views[rank], known) < furthest
            ):
                found.setdefault(rank, MissedOp(known, kind, furthest))
    return found or _not_met(frame, victims)


def _not_met(frame: ObservedFrame, victims: set[int]) -> dict[int, MissedOp]:
    """Ranks that left cleanly, but should have been at the other end of a victim's last op."""
    views = frame.ranks
    found: dict[int, MissedOp] = {}
    for rank in sorted(victims):
        fronts = views[rank].group_progress.values()
        front = max(fronts, key=lambda front: front.issued_ns, default=None)
        last = front.last if front is not None else None
        if last is None or not last.p2p or last.signature is None:
            continue
        group, peer = views[rank].groups.get(last.group), last.signature.peer
        if group and peer is not None and peer in views and views[peer].state == "done":
            found.setdefault(peer, MissedOp(group, kind_of(last), 0))
    return found


def _sat_in_op(view: Rank) -> bool:
    return any(op.sync and op.pending and not op.pseudo for op in view.pending)


class Exited(Detail, frozen=True):
    """Ranks that left. `victims` wait at `node`, or failed in the op that `ranks` missed."""

    ranks: tuple[int, ...]
    victims: frozenset[int]
    node: WaitNode | None
    missed: MissedOp | None


def detect_exited(context: Context) -> list[Finding]:
    """One finding for each set of ranks that left and are waited for."""
    done = context.index.states["done"]
    if not done:
        return []
    found: dict[tuple[int, ...], tuple[list[WaitNode], set[int]]] = {}
    for node in context.awaiting(done):
        gone = tuple(rank for rank in node.ended if context.ranks[rank].state == "done")
        settled = context.now_ns - node.since_ns >= HOST_SKEW_NS
        # A receive that no thread waits in may never complete, and proves nothing.
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
    """The finding on `ranks` that left: blamed, unless they outnumber those that need them."""
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


class Died(Detail, frozen=True):
    """Ranks that died of one cause, the first one first.

    `ended_outside`: all were ended from outside, so none of them is to blame.
    """

    deaths: tuple[Death, ...]
    node: WaitNode | None
    waiting: frozenset[int]
    followers: frozenset[int]
    ended_outside: bool


MOST_FIRST: Final = 4
"""Aborted ranks to look at first; none of them is to blame for sure."""


class Aborted(Detail, frozen=True):
    """Ranks that were aborted a moment ago; whose op caused it is not known yet."""

    deaths: tuple[Death, ...]


class ConnectionsBroke(Detail, frozen=True):
    """Every connection closed, and it is not known which rank closed the first."""

    followers: tuple[Death, ...]


class LeftGroup(Detail, frozen=True):
    """Living ranks that lag while the others' connections closed: they left the group."""

    deaths: tuple[Death, ...]
    waiting: frozenset[int]
    progress: ProgressSeen


class GaveUp(Detail, frozen=True):
    """Ranks that others waited for until torch's own timeout."""

    deaths: tuple[Death, ...]
    missed: MissedOp


def detect(context: Context) -> list[Finding]:
    """Findings for deaths that no mismatch explains."""
    roots, followers = context.deaths.roots, context.deaths.followers
    explained = {d.rank for one in context.mismatches for d in deaths_caused_by(context, one)}
    roots = tuple(group for group in roots if not all(d.rank in explained for d in group))
    if not roots:
        return _without_root(context, [d for d in followers if d.rank not in explained])
    first = [death for group in roots for death in group]
    dead = {death.rank for death in first}
    followed = frozenset(death.rank for death in followers)
    nodes = context.awaiting(dead | followed)
    others = {rank.state for number, rank in context.ranks.items() if number not in dead}
    failed = any(death.failed for death in first)
    if others == {"done"} and not (nodes or followers or failed):
        return []  # no rank needs them: they were done themselves
    if _may_be_victims(context, first):
        left = context.index.states["done"]  # these explain the nodes that wait for them, too
        return [_aborted(first, followed, [one for one in nodes if left.isdisjoint(one.ended)])]
    return [
        _died(context, roots[0], nodes, followed),
        *(_died(context, group, [], frozenset()) for group in roots[1:]),
    ]


def unread_rings(context: Context) -> list[int]:
    """Dead ranks whose last ops have not been read yet, where these may show a mismatch."""
    deaths = context.deaths.every
    if not any(death.nature in ("abort", "network") for death in deaths):
        return []
    seen = ((death.rank, context.ranks[death.rank].snapshot) for death in deaths)
    return [rank for rank, snapshot in seen if snapshot is None or not snapshot.ops]


def _died(
    context: Context,
    deaths: Sequence[Death],
    nodes: Sequence[WaitNode],
    followers: frozenset[int],
) -> Finding:
    first = deaths[0]
    ranks = tuple(sorted(death.rank for death in deaths))
    waiting = frozenset(rank for node in nodes for rank in node.waiting).difference(ranks)
    node = nodes[0] if nodes else None
    outside = first.nature == "ended" and len(ranks) > 1
    return Finding(
        kind="dead",
        detail=Died(tuple(deaths), node, waiting, followers, outside),
        key=("dead", tuple(death.rank for death in deaths)),
        culprits=() if outside else ranks,
        victims=(waiting | followers).difference(ranks),
        cause=first.cause,
        group=group_key(node.group) if node is not None else None,
        op=op_of(node) if node is not None else None,
        nodes=tuple(nodes),
        since_ns=first.at_ns,
        left_s=node.left_s(context.now_ns) if node is not None else None,
    )


def _aborted(
    deaths: Sequence[Death], followers: frozenset[int], nodes: Sequence[WaitNode]
) -> Finding:
    ranks = frozenset(death.rank for death in deaths)
    return Finding(
        kind="undecided",
        detail=Aborted(tuple(deaths)),
        key=("aborted", ranks),
        victims=ranks | followers,
        parties=tuple((death.rank,) for death in deaths[:MOST_FIRST]),
        cause=deaths[0].cause,
        nodes=tuple(nodes),
        since_ns=deaths[0].at_ns,
    )


def _may_be_victims(context: Context, deaths: Sequence[Death]) -> bool:
    """Whether all may be victims: aborted just now, with last ops not read yet.

    Without a recorder that stays open: gloo also aborts the victims of a mismatch, and an exception
    ends a program with status 1 even if another rank closed the connection.
    """
    unseen = not any(context.ranks[death.rank].evidence.has_exceptions for death in deaths)
    if not all(death.nature in ("abort", "unknown") for death in deaths):
        return False
    fresh = context.now_ns - min(death.at_ns for death in deaths) < RINGS_READ_NS
    return unseen or (fresh and bool(unread_rings(context)))


def _without_root(context: Context, followers: Sequence[Death]) -> list[Finding]:
    """Every death is a consequence: a rank left cleanly, or lagged when time ran out."""
    broken = [d for d in followers if d.nature in ("network", "timeout", "mismatch")]
    if not broken:
        return []
    victims = {death.rank for death in broken}
    missed = laggards(context.frame, victims)
    late = sorted(missed)
    gone = [rank for rank in late if context.ranks[rank].state == "done"]
    if gone:
        # Some lost the connection, some still wait: one departure is one finding.
        nodes = context.awaiting(gone)
        victims |= {rank for node in nodes for rank in node.waiting}
        return [exited(context, gone, victims, nodes, missed=missed[gone[0]])]
    living = [rank for rank in late if context.ranks[rank].exit_info is None]
    # The rank that broke the connections may have died, too, which may be reported later.
    settled = context.now_ns - broken[0].at_ns >= RANKS_TELL_NS
    if living and settled and all(death.nature == "network" for death in broken):
        return [_left_group(context, living, broken)]
    if missed and any(death.nature == "timeout" for death in broken):
        if any(rank in node.free for node in context.overdue for rank in late):
            return []  # others still wait for it: `wait_ends` finds more
        return [_gave_up(late, broken, missed[late[0]])]
    return [
        Finding(
            kind="undecided",
            detail=ConnectionsBroke(tuple(broken)),
            key=("broken", len(broken)),
            since_ns=broken[0].at_ns,
        )
    ]


def _left_group(context: Context, ranks: Sequence[int], deaths: Sequence[Death]) -> Finding:
    progress = progress_of(context.ranks[ranks[0]], context.now_ns)
    # Nodes that still wait, and only for these ranks, say no more than the dead do.
    nodes = [node for node in context.awaiting(ranks) if {*node.free} <= {*ranks}]
    waiting = frozenset(rank for node in nodes for rank in node.waiting)
    return Finding(
        kind="not_entered",
        detail=LeftGroup(tuple(deaths), waiting, progress),
        key=("left", tuple(ranks)),
        culprits=tuple(ranks),
        victims=waiting.union(death.rank for death in deaths),
        cause="out_of_loop",
        progress=progress.progress,
        nodes=tuple(nodes),
        since_ns=deaths[0].at_ns,
    )


def _gave_up(ranks: Sequence[int], deaths: Sequence[Death], missed: MissedOp) -> Finding:
    first = deaths[0]
    return Finding(
        kind="not_entered",
        detail=GaveUp(tuple(deaths), missed),
        key=("gave up", tuple(ranks)),
        culprits=tuple(ranks),
        victims=frozenset(death.rank for death in deaths),
        group=group_key(missed.group),
        op=OpName(missed.kind, missed.number),
        since_ns=first.at_ns - int(first.waited_s * 1e9),
    )
