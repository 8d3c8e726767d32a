"""Ranks that died of themselves, and jobs in which every rank only followed."""

from __future__ import annotations

from collections.abc import Sequence

from frtop_tui.diagnosis.cases.context import Context
from frtop_tui.diagnosis.cases.dead.exited import exited
from frtop_tui.diagnosis.cases.dead.laggards import MissedOp, laggards
from frtop_tui.diagnosis.cases.mismatch.detect import deaths_caused_by
from frtop_tui.diagnosis.evidence.death import Death
from frtop_tui.diagnosis.evidence.progress import ProgressSeen, progress_of
from frtop_tui.diagnosis.finding import Detail, Finding, group_key, op_of
from frtop_tui.diagnosis.graph.wait_node import WaitNode
from frtop_tui.diagnosis.model import OpName
from frtop_tui.diagnosis.thresholds import RANKS_TELL_NS, RINGS_READ_NS


class Died(Detail, frozen=True):
    """Ranks that died of one cause, the first one first.

    `ended_outside`: somebody told them all to end, so none of them is to blame.
    """

    deaths: tuple[Death, ...]
    node: WaitNode | None
    waiting: frozenset[int]
    followers: frozenset[int]
    ended_outside: bool


class Aborted(Detail, frozen=True):
    """Ranks that were aborted a moment ago; whose op it was is not known yet."""

    deaths: tuple[Death, ...]


class ConnectionsBroke(Detail, frozen=True):
    """Every connection closed, and nobody is known who closed the first."""

    followers: tuple[Death, ...]


class LeftGroup(Detail, frozen=True):
    """Ranks that live and lag, while the others' connections closed: they left the group."""

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
        return []  # nobody needs them: they were done themselves
    if _may_be_victims(context, first):
        left = context.index.states["done"]  # what waits for them, too, is theirs to explain
        return [_aborted(first, followed, [one for one in nodes if left.isdisjoint(one.ended)])]
    return [
        _died(context, roots[0], nodes, followed),
        *(_died(context, group, [], frozenset()) for group in roots[1:]),
    ]


def unread_rings(context: Context) -> list[int]:
    """Dead ranks whose last ops are not read yet, where these may show a mismatch."""
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
        cause=deaths[0].cause,
        nodes=tuple(nodes),
        since_ns=deaths[0].at_ns,
    )


def _may_be_victims(context: Context, deaths: Sequence[Death]) -> bool:
    """Whether all were aborted just now, and their last ops are not read yet.

    Without a recorder nobody will know: gloo aborts the victims of an op that does not fit
    theirs, and an exception ends a program with status 1, whoever closed its connection.
    """
    unseen = not any(context.ranks[death.rank].evidence.has_exceptions for death in deaths)
    if unseen and all(death.nature in ("abort", "unknown") for death in deaths):
        return True
    fresh = context.now_ns - min(death.at_ns for death in deaths) < RINGS_READ_NS
    aborted = all(death.nature == "abort" for death in deaths)
    return fresh and aborted and bool(unread_rings(context))


def _without_root(context: Context, followers: Sequence[Death]) -> list[Finding]:
    """Every rank followed: somebody left cleanly, or lagged when time ran out."""
    broken = [death for death in followers if death.nature in ("network", "timeout")]
    if not broken:
        return []
    victims = {death.rank for death in broken}
    missed = laggards(context.frame, victims)
    late = sorted(missed)
    gone = [rank for rank in late if context.ranks[rank].state == "done"]
    if gone:
        # Some broke off, some still wait: one departure, one finding.
        nodes = context.awaiting(gone)
        victims |= {rank for node in nodes for rank in node.waiting}
        return [exited(context, gone, victims, nodes, missed=missed[gone[0]])]
    living = [rank for rank in late if context.ranks[rank].exit_info is None]
    # Who broke the connections may have died as well, and that be told a moment later.
    settled = context.now_ns - broken[0].at_ns >= RANKS_TELL_NS
    if living and settled and all(death.nature == "network" for death in broken):
        return [_left_group(context, living, broken)]
    if missed and any(death.nature == "timeout" for death in broken):
        if any(rank in node.free for node in context.overdue for rank in late):
            return []  # others still wait for it: `wait_ends` knows more
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
    # Those that still wait for it, and for nobody else, say no more than the dead.
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
