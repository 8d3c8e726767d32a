"""Ops that every member has entered and that do not finish."""

from __future__ import annotations

from frtop_tui.diagnosis.detectors.context import Context
from frtop_tui.diagnosis.detectors.mismatch import unaligned
from frtop_tui.diagnosis.detectors.stuck.dead_links import DeadLinks, dead_links
from frtop_tui.diagnosis.detectors.stuck.device_lag import DeviceLag, device_lag
from frtop_tui.diagnosis.detectors.stuck.doubt import Doubt, doubt
from frtop_tui.diagnosis.detectors.stuck.rendezvous import Rendezvous, rendezvous
from frtop_tui.diagnosis.evidence.absence_cause import absence_cause
from frtop_tui.diagnosis.evidence.progress import progress_of
from frtop_tui.diagnosis.finding import Detail, Finding, group_key, op_of
from frtop_tui.diagnosis.graph.wait_node import WaitNode
from frtop_tui.diagnosis.model import OpName


class Stuck(Detail, frozen=True):
    """All have entered `node`: one of them is stopped, links are dead, or the transport is."""

    node: WaitNode
    stopped: int | None = None
    links: DeadLinks | None = None
    rendezvous: Rendezvous | None = None


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
    return unaligned.find(context, node) or _lagging_devices(context, node) or _stuck(context, node)


def _lagging_devices(context: Context, node: WaitNode) -> Finding | None:
    lag = device_lag(context.ranks, node)
    if lag is None:
        return None
    return Finding(
        kind="stuck",
        detail=LaggingDevices(node, lag),
        key=("device", node.id, lag.ranks),
        culprits=lag.ranks,
        victims=frozenset(rank for rank in node.members if rank not in lag.ranks),
        cause="device",
        progress=progress_of(context.ranks[lag.ranks[0]], context.now_ns).progress,
        group=group_key(node.group),
        op=OpName(node.kind, lag.number),
        since_ns=node.known_since_ns,
        left_s=node.left_s(context.now_ns),
    )


def _stuck(context: Context, node: WaitNode) -> Finding:
    members = (context.ranks.get(rank) for rank in node.members)
    halted = [view for view in members if view is not None and view.state == "stopped"]
    culprit = halted[0] if len(halted) == 1 else None
    links = dead_links(context.ranks, node) if culprit is None else None
    reason = doubt(context.ranks, node) if culprit is None else None
    if reason is not None:
        return Finding(
            kind="undecided",
            detail=InDoubt(node, reason, links),
            key=("stuck", node.id, ()),
            victims=frozenset(node.waiting),
            cause="unheard" if node.unobserved else "unknown",
            progress="unknown",
            group=group_key(node.group),
            op=op_of(node),
            since_ns=node.known_since_ns,
            left_s=node.left_s(context.now_ns),
        )
    culprits: tuple[int, ...] = ()
    cause, meeting = "transport", None
    if culprit is not None:
        culprits, cause = (culprit.rank,), absence_cause(culprit).cause
    elif links is not None:
        culprits, cause = links.ranks, "unreachable"
    elif (meeting := rendezvous(context.ranks, node)) is not None:
        cause = meeting.cause
    return Finding(
        kind="stuck",
        detail=Stuck(node, culprit.rank if culprit is not None else None, links, meeting),
        key=("stuck", node.id, culprits),
        culprits=culprits,
        victims=frozenset(node.waiting).difference(culprits),
        cause=cause,
        group=group_key(node.group),
        op=op_of(node),
        since_ns=node.known_since_ns,
        left_s=node.left_s(context.now_ns),
    )
