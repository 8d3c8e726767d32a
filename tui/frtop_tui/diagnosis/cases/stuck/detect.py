"""Ops that every member has entered and that do not finish."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from frtop_tui.diagnosis.cases.context import Context
from frtop_tui.diagnosis.cases.mismatch.detect import unaligned
from frtop_tui.diagnosis.cases.stuck.dead_links import DeadLinks, dead_links
from frtop_tui.diagnosis.cases.stuck.devices import DeviceCalls, DeviceLag, device_calls, device_lag
from frtop_tui.diagnosis.cases.stuck.rendezvous import Rendezvous, rendezvous
from frtop_tui.diagnosis.causes import Cause
from frtop_tui.diagnosis.evidence.absence_cause import absence_cause
from frtop_tui.diagnosis.evidence.progress import progress_of
from frtop_tui.diagnosis.evidence.rank_activity import working_location
from frtop_tui.diagnosis.finding import Detail, Finding, facts_of
from frtop_tui.diagnosis.graph.wait_node import WaitNode
from frtop_tui.diagnosis.model import OpName
from frtop_tui.job.model import Rank

Reason = Literal[
    "message",  # the peer has issued the other half, or who has to, or whether it has is not known
    "single dump",  # it has no age
    "unobserved",  # a member that entered it no longer reports
    "device",  # completion is not known, and no stack is in the op itself
    "unseen",  # what the members sent is not known: another root or size may be the cause
]


class Stuck(Detail, frozen=True):
    """All have entered `node`: one of them is stopped, links are dead, or the transport is."""

    node: WaitNode
    stopped: int | None = None
    links: DeadLinks | None = None
    rendezvous: Rendezvous | None = None
    calls: DeviceCalls | None = None


class Doubt(Detail, frozen=True):
    """Why an op may not be stuck, and the ranks that tell so."""

    reason: Reason
    ranks: tuple[int, ...] = ()


class InDoubt(Detail, frozen=True):
    """All have entered `node`, and it may not be stuck at all."""

    node: WaitNode
    doubt: Doubt
    links: DeadLinks | None = None


class LaggingDevices(Detail, frozen=True):
    """All have issued `node`, and the devices of a few lag those of the others."""

    node: WaitNode
    lag: DeviceLag


def find(context: Context, node: WaitNode) -> Finding:
    """The finding on a node that every member has entered."""
    return unaligned(context, node) or _lagging_devices(context, node) or _stuck(context, node)


def _lagging_devices(context: Context, node: WaitNode) -> Finding | None:
    lag = device_lag(context.ranks, node)
    if lag is None:
        return None
    facts = facts_of([node], context.now_ns)
    facts["op"], facts["issuer"] = OpName(node.kind, lag.number), None
    return Finding(
        kind="stuck",
        detail=LaggingDevices(node, lag),
        key=("device", node.id, lag.ranks),
        culprits=lag.ranks,
        victims=frozenset(rank for rank in node.members if rank not in lag.ranks),
        cause="device",
        progress=progress_of(context.ranks[lag.ranks[0]], context.now_ns).progress,
        **facts,
    )


def _stuck(context: Context, node: WaitNode) -> Finding:
    views = context.ranks
    halted = [rank for rank in node.members if rank in views and views[rank].state == "stopped"]
    stopped = halted[0] if len(halted) == 1 else None
    links, doubt, meeting = None, None, None
    if stopped is None:
        links, doubt = dead_links(views, node), _doubt(views, node)
        unseen = not node.op.pseudo and any(
            not views[wait.rank].evidence.has_signatures for wait in node.waits
        )
        if doubt is None and links is None and unseen:
            doubt = Doubt("unseen")
    if doubt is not None:
        victims = (other for other in context.overdue if node in other.successors)
        nodes = [node, *victims]
        return Finding(
            kind="undecided",
            detail=InDoubt(node, doubt, links),
            key=("stuck", node.id, ()),
            victims=frozenset(rank for one in nodes for rank in one.waiting),
            cause="unreachable" if node.unobserved else "unknown",
            progress="unknown",
            **facts_of(nodes, context.now_ns),
        )
    culprits: tuple[int, ...] = ()
    cause: Cause = "transport"
    calls = None
    if stopped is not None:
        culprits, cause = (stopped,), absence_cause(views[stopped]).cause
    elif links is not None:
        culprits, cause = links.ranks, "cut_off"
    elif (meeting := rendezvous(views, node)) is not None:
        cause = meeting.cause
    elif (calls := device_calls(views, node)) is not None:
        culprits, cause = calls.odd if calls.inside else (), "device"
    return Finding(
        kind="stuck",
        detail=Stuck(node, stopped, links, meeting, calls),
        key=("stuck", node.id, culprits),
        culprits=culprits,
        victims=frozenset(node.waiting).difference(culprits),
        cause=cause,
        **facts_of([node], context.now_ns),
    )


def _doubt(views: Mapping[int, Rank], node: WaitNode) -> Doubt | None:
    """The first reason to doubt that `node` is stuck."""
    if node.op.p2p:
        return Doubt("message")
    if node.undated:
        return Doubt("single dump")
    unreachable = [
        rank for rank in node.members if rank in views and views[rank].state == "unreachable"
    ]
    if unreachable:
        return Doubt("unobserved", tuple(unreachable))
    places = (working_location(views[rank]) for rank in node.waiting)
    if node.op.tracked or any(place and place.kind == "collective" for place in places):
        return None
    return Doubt("device")
