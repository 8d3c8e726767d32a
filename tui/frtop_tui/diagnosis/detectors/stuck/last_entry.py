"""When the last member entered an op that all have entered."""

from __future__ import annotations

from collections.abc import Mapping

from frtop_tui.diagnosis.blocked.group_frontier import local_group_id
from frtop_tui.diagnosis.blocked.patience import patience_ns
from frtop_tui.diagnosis.graph.p2p_match import answers
from frtop_tui.diagnosis.graph.wait_node import WaitNode
from frtop_tui.job.model import Rank


def entered_recently(views: Mapping[int, Rank], node: WaitNode, now_ns: int) -> bool:
    """Whether the last member entered recently: earlier waiting no longer counts."""
    if node.undated:
        return False
    return now_ns - _entered_ns(views, node) <= patience_ns(node.op, node.group)


def _entered_ns(views: Mapping[int, Rank], node: WaitNode) -> int:
    """Operator's time at which a member last entered `node`, or issued more in its group."""
    last = max(wait.since_ns for wait in node.waits)
    if node.op.p2p:
        return max(last, _answered_ns(views, node))
    group = node.group
    if group is None or node.op.pseudo:
        return last
    for rank in node.members:
        view = views.get(rank)
        if view is None:
            continue
        number = local_group_id(view, group)
        front = view.group_progress.get(number) if number is not None else None
        if front is not None and front.issued_ns:
            last = max(last, front.issued_ns + view.clock_ns)
    return last


def _answered_ns(views: Mapping[int, Rank], node: WaitNode) -> int:
    """When the peer issued its half, if that is still pending."""
    view = views.get(node.peer) if node.peer is not None else None
    if view is None:
        return 0
    halves = [op.issued_ns for op in view.pending if answers(op, node)]
    return max(halves) + view.clock_ns if halves else 0
