"""Waits that last, of which it is not known yet whether they are out of the ordinary.

No finding: a rank that has sat in its first barrier for 25 s may be hung, or early.
"""

from __future__ import annotations

from frtop_tui.diagnosis.graph.wait_graph import WaitGraph, in_order
from frtop_tui.diagnosis.graph.wait_node import WaitNode


def long_waits(graph: WaitGraph, now_ns: int) -> list[WaitNode]:
    """Nodes where a rank has waited for seconds, and longer than usual; the oldest first."""
    found = in_order(graph.nodes_where("lasting", now_ns))
    return sorted(found, key=lambda node: node.since_ns)
