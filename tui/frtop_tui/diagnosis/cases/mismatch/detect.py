"""Ops that differ at the same sequence number, and the deaths and waits they lead to."""

from __future__ import annotations

from msgspec.structs import replace

from frtop_tui.diagnosis.blocked.group_frontier import last_issued_number, local_group_id
from frtop_tui.diagnosis.cases.context import Context
from frtop_tui.diagnosis.cases.mismatch.compare import NEAR, Mismatch, compare
from frtop_tui.diagnosis.evidence.death import Death
from frtop_tui.diagnosis.finding import Detail, Finding, group_key
from frtop_tui.diagnosis.graph.wait_node import WaitNode, kind_of, soonest_left_s
from frtop_tui.diagnosis.model import OpName
from frtop_tui.diagnosis.thresholds import RANKS_TELL_NS
from frtop_tui.job.groups import identifier, members_of
from frtop_tui.job.model import BaseFrame


class OpsDiffer(Detail, frozen=True):
    """`blocking`: ranks wait because of it. `fatal`: deaths follow. `over`: all ranks have ended.

    `unaligned` ranks count from a later op, so the op has no number.
    """

    mismatch: Mismatch
    blocking: bool = False
    fatal: bool = False
    over: bool = False
    from_dumps: bool = False
    unaligned: tuple[int, ...] = ()


def detect(context: Context) -> list[Finding]:
    """One finding for each known mismatch."""
    return [_finding(context, one) for one in context.mismatches]


def _finding(context: Context, one: Mismatch) -> Finding:
    # All nodes: a mismatch explains short waits, too.
    nodes = tuple(
        node for node in context.graph.all.values() if one.explains(node.group, node.number)
    )
    dead = {death.rank for death in deaths_caused_by(context, one)}
    victims = {rank for node in nodes for rank in node.waiting} | dead
    # Agents forget ranks some time after they have ended.
    known = [context.ranks.get(party.ranks[0]) for party in one.parties]
    dumped = any(not rank.evidence.has_ages for rank in known if rank is not None)
    return mismatch_finding(
        context.frame, one, victims, fatal=bool(dead), from_dumps=dumped, nodes=nodes
    )


def unaligned(context: Context, node: WaitNode) -> Finding | None:
    """A mismatch in the group of `node`, if a recorder started after the group was created.

    The members' numbers cannot be compared. But if every member is blocked in an op of the group,
    and these cannot be the same op, they differ whatever their numbers are.
    """
    group = node.group
    if group is None or node.op.pseudo or node.op.p2p:
        return None
    key = identifier(group)
    nodes = [n for n in context.graph.all.values() if n.group and identifier(n.group) == key]
    waits = {
        wait.rank: wait
        for other in nodes
        for wait in other.waits
        if not (wait.background or wait.op.pseudo or wait.op.p2p)
    }
    late = [rank for rank, wait in waits.items() if wait.group and not wait.group.exact]
    if not late or waits.keys() != set(node.members):
        return None
    found = compare(group, 0, {rank: wait.op for rank, wait in waits.items()})
    if found is None:
        return None
    made = mismatch_finding(
        context.frame,
        replace(found, since_ns=node.since_ns),
        set(node.members),
        nodes=tuple(nodes),
        unaligned=tuple(sorted(late)),
    )
    return replace(made, key=("unaligned", node.id, made.parties))


def mismatch_finding(
    frame: BaseFrame,
    one: Mismatch,
    victims: set[int],
    *,
    fatal: bool = False,
    from_dumps: bool = False,
    nodes: tuple[WaitNode, ...] = (),
    unaligned: tuple[int, ...] = (),
) -> Finding:
    """The finding on one mismatch; no rank is blamed while the minority may still change."""
    culprits = () if _minority_is_open(one, frame) else one.culprits
    main = one.parties[0]
    over = all(rank.state in ("dead", "done") for rank in frame.ranks.values())
    sides = tuple(party.ranks for party in one.parties)
    return Finding(
        kind="mismatch",
        detail=OpsDiffer(one, bool(victims), fatal, over, from_dumps, unaligned),
        key=("mismatch", group_key(one.group), one.number, sides),
        culprits=culprits,
        victims=frozenset(victims - set(culprits)),
        parties=(tuple(culprits), main.ranks) if culprits else sides,
        cause="mismatch",
        progress="none" if victims or over else "active",
        group=group_key(one.group),
        op=OpName(kind_of(main.op), one.number or None),
        issuer=main.op.issuer,
        nodes=nodes,
        since_ns=one.since_ns,
        left_s=soonest_left_s(nodes, frame.now_ns),
    )


def deaths_caused_by(context: Context, one: Mismatch) -> list[Death]:
    """Deaths that follow from a mismatch: all without a cause of their own."""
    members = {rank for party in one.parties for rank in party.ranks}
    deaths = context.deaths.every
    if all(d.rank not in members or _has_passed(context, d.rank, one) for d in deaths):
        return []
    return [death for death in deaths if death.nature != "own"]


def _has_passed(context: Context, rank: int, one: Mismatch) -> bool:
    """Whether a rank completed the op long before, and so died of something else."""
    view, last = context.ranks[rank], one.number + NEAR
    if not one.parties[0].op.tracked or last_issued_number(view, one.group) <= last:
        return False
    mine = local_group_id(view, one.group)
    return not any(op.group == mine and not op.p2p and op.number <= last for op in view.pending)


def _minority_is_open(one: Mismatch, frame: BaseFrame) -> bool:
    """Whether members whose op is not known yet may make another party the largest."""
    reported = {rank for party in one.parties for rank in party.ranks}
    missing = [rank for rank in members_of(one.group.ranks) if rank not in reported]
    if len(one.parties[0].ranks) > len(one.rest) + len(missing):
        return False
    views = (frame.ranks.get(rank) for rank in missing)
    fresh = frame.now_ns - one.since_ns < RANKS_TELL_NS
    return fresh or any(view is None or view.state == "unreachable" for view in views)
