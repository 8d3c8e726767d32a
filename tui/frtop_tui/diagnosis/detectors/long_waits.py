"""Waits that last, of which it is not known yet whether they are out of the ordinary.

No verdict, and no health either: a rank that has sat in its first barrier for 25 s may be
hung, or early.
"""

from __future__ import annotations

from typing import Final

from frtop_tui.diagnosis.blocked.patience import has_history
from frtop_tui.diagnosis.blocked.wait_deadlines import deadlines_of
from frtop_tui.diagnosis.graph.wait_graph import WaitGraph, in_order
from frtop_tui.diagnosis.graph.wait_node import WaitNode
from frtop_tui.diagnosis.wording.phrases import at_line, op_text, usual_text, wait_text
from frtop_tui.job.naming import duration

MOST_TOLD: Final = 3


def lasting(nodes: WaitGraph, now_ns: int) -> list[WaitNode]:
    """Points at which somebody has sat for seconds, and longer than usual; oldest first."""
    found = in_order(nodes.nodes_where("lasting", now_ns))
    return sorted(found, key=lambda node: node.since_ns)


def lasting_texts(found: list[WaitNode], now_ns: int) -> tuple[str, ...]:
    """One line for each of the longest waits, and one that counts the others."""
    texts = [_text(node, now_ns) for node in found[:MOST_TOLD]]
    if len(found) > MOST_TOLD:
        others = [rank for node in found[MOST_TOLD:] for rank in node.waiting]
        texts.append(f"{wait_text(others)} in other ops, less long")
    return tuple(texts)


def _text(node: WaitNode, now_ns: int) -> str:
    """`rank 1 waits 25s in barrier #41 of default_pg at train.py:88; how long that ...`."""
    waits = [wait for wait in node.waits if now_ns > deadlines_of(wait).lasting]
    oldest = min(waits, key=lambda wait: wait.since_ns)
    age = duration((now_ns - oldest.since_ns) / 1e9)
    usual = "how long that usually takes is not known yet"
    if has_history(oldest.op):
        usual = f"there it usually takes {usual_text(oldest.op)}"
    ranks = wait_text(wait.rank for wait in waits)
    return f"{ranks} {age} in {op_text(node)}{at_line(oldest.op)}; {usual}"
