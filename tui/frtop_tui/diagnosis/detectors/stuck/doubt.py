"""Why an op that all have entered may not be stuck."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from frtop_tui.diagnosis.evidence.rank_activity import main_thread_location
from frtop_tui.diagnosis.finding import Detail
from frtop_tui.diagnosis.graph.wait_node import WaitNode
from frtop_tui.job.model import Rank

Reason = Literal[
    "message",  # the peer has issued the other half, or which peer is not known
    "single dump",  # it has no age
    "unobserved",  # a member that entered it is not heard any more
    "device",  # completion is not known, and no stack is in the op itself
]


class Doubt(Detail, frozen=True):
    """A reason, and the ranks that it is about."""

    reason: Reason
    ranks: tuple[int, ...] = ()


def doubt(views: Mapping[int, Rank], node: WaitNode) -> Doubt | None:
    """The first reason to doubt that `node` is stuck."""
    if node.op.p2p:
        return Doubt("message")
    if node.undated:
        return Doubt("single dump")
    members = [view for rank in node.members if (view := views.get(rank)) is not None]
    unheard = tuple(view.rank for view in members if view.state == "unheard")
    if unheard:
        return Doubt("unobserved", unheard)
    if not node.op.tracked and not any(_in_collective(views[rank]) for rank in node.waiting):
        return Doubt("device")
    return None


def _in_collective(view: Rank) -> bool:
    place = main_thread_location(view)
    return place is not None and place.kind == "collective"
