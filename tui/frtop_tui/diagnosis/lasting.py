"""Waits that last, of which it is not known yet whether they are out of the ordinary.

No verdict, and no health either: a rank that has sat in its first barrier for 25 s may be
hung, or early.
"""

from __future__ import annotations

from typing import Final

from frtop_tui.diagnosis.moments import moments_of
from frtop_tui.diagnosis.phrases import at_line, op_text, usual_text, wait_text
from frtop_tui.diagnosis.points import Point, Points, in_order
from frtop_tui.diagnosis.waiting import has_history
from frtop_tui.job.naming import duration

MOST_TOLD: Final = 3


def lasting(points: Points, now_ns: int) -> list[Point]:
    """Points at which somebody has sat for seconds, and longer than usual; oldest first."""
    found = in_order(points.that("lasting", now_ns))
    return sorted(found, key=lambda point: point.since_ns)


def lasting_texts(found: list[Point], now_ns: int) -> tuple[str, ...]:
    """One line for each of the longest waits, and one that counts the others."""
    texts = [_text(point, now_ns) for point in found[:MOST_TOLD]]
    if len(found) > MOST_TOLD:
        others = [rank for point in found[MOST_TOLD:] for rank in point.waiting]
        texts.append(f"{wait_text(others)} in other ops, less long")
    return tuple(texts)


def _text(point: Point, now_ns: int) -> str:
    """`rank 1 waits 25s in barrier #41 of default_pg at train.py:88; how long that ...`."""
    waits = [wait for wait in point.waits if now_ns > moments_of(wait).lasting]
    oldest = min(waits, key=lambda wait: wait.since_ns)
    age = duration((now_ns - oldest.since_ns) / 1e9)
    usual = "how long that usually takes is not known yet"
    if has_history(oldest.op):
        usual = f"there it usually takes {usual_text(oldest.op)}"
    ranks = wait_text(wait.rank for wait in waits)
    return f"{ranks} {age} in {op_text(point)}{at_line(oldest.op)}; {usual}"
