"""Words for waits of which it is not known yet whether they are out of the ordinary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from frtop_tui.diagnosis.blocked.patience import has_history
from frtop_tui.diagnosis.blocked.wait_deadlines import deadlines_of
from frtop_tui.diagnosis.graph.wait_node import WaitNode
from frtop_tui.diagnosis.wording.phrases import at_line, op_text, usual_text
from frtop_tui.diagnosis.wording.tense import Tense
from frtop_tui.job.naming import duration

_MOST_LISTED: Final = 3


def long_wait_texts(nodes: Sequence[WaitNode], now_ns: int) -> tuple[str, ...]:
    """One line for each of the longest waits, and one that counts the others."""
    texts = [_text(node, now_ns) for node in nodes[:_MOST_LISTED]]
    if len(nodes) > _MOST_LISTED:
        others = [rank for node in nodes[_MOST_LISTED:] for rank in node.waiting]
        texts.append(f"{Tense.PRESENT.waits(others)} in other ops, less long")
    return tuple(texts)


def _text(node: WaitNode, now_ns: int) -> str:
    """`rank 1 waits 25s in barrier #41 of default_pg at train.py:88; how long that ...`."""
    waits = [wait for wait in node.waits if now_ns > deadlines_of(wait).lasting]
    oldest = min(waits, key=lambda wait: wait.since_ns)
    age = duration((now_ns - oldest.since_ns) / 1e9)
    usual = "how long that usually takes is not known yet"
    if has_history(oldest.op):
        usual = f"there it usually takes {usual_text(oldest.op)}"
    ranks = Tense.PRESENT.waits(wait.rank for wait in waits)
    return f"{ranks} {age} in {op_text(node)}{at_line(oldest.op)}; {usual}"
