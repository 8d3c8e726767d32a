"""What is certain without a second look, and what no number of looks can settle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from frtop_tui.diagnosis.graph.wait_node import WaitNode
from frtop_tui.job.model import Rank

CERTAIN: Final = frozenset({"stopped", "gil"})
"""Causes that updates alone prove: no snapshot has to confirm them, and none is slowness."""
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def members_known(node: WaitNode) -> bool:
    """Whether it is known which ranks have to enter `node`.

    Every rank of the world has to enter `init_process_group`. Calls such as `new_group` name
    their ranks; where one does not, mostly every rank has to enter.
    """
    known = node.kind == "init_process_group" or node.callers is not None
    return not node.op.pseudo or known or node.rpc is not None


def belong_to_heard_hosts(views: Mapping[int, Rank], never: Sequence[int]) -> bool:
    """Whether ranks that never appeared would run on heard hosts, by the ranks around them.

    Other ranks may run where no agent is connected: their silence means little.
    """
    if all(view.identity.job.master_addr in LOOPBACK for view in views.values()):
        return True
    spans: dict[str, tuple[int, int]] = {}
    for rank, view in views.items():
        first, last = spans.get(view.host, (rank, rank))
        begin = rank - max(0, view.identity.local_rank)
        spans[view.host] = (min(first, begin), max(last, rank))
    return all(any(first <= rank <= last for first, last in spans.values()) for rank in never)
