"""Waits that last, of which it is not known yet whether they are out of the ordinary.

No verdict, and no health either: a rank that has sat in its first barrier for 25 s may be
hung, or early.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from frtop_tui.diagnosis.phrases import at_line, op_text, usual_text, wait_text
from frtop_tui.diagnosis.points import Point
from frtop_tui.diagnosis.waiting import AT_LEAST_NS, Wait, has_history
from frtop_tui.job.naming import duration

MOST_TOLD: Final = 3
TWICE: Final = 2
"""A wait of the usual length is ordinary however long; no two are quite alike."""


def lasting(points: Iterable[Point], now_ns: int) -> list[Point]:
    """Points at which somebody has sat for seconds, and longer than usual; oldest first."""
    found = [point for point in points if any(_lasts(wait, now_ns) for wait in point.waits)]
    return sorted(found, key=lambda point: point.since_ns)


def lasting_texts(found: list[Point], now_ns: int) -> tuple[str, ...]:
    """One line for each of the longest waits, and one that counts the others."""
    texts = [_text(point, now_ns) for point in found[:MOST_TOLD]]
    if len(found) > MOST_TOLD:
        others = [rank for point in found[MOST_TOLD:] for rank in point.waiting]
        texts.append(f"{wait_text(others)} in other ops, less long")
    return tuple(texts)


def _lasts(wait: Wait, now_ns: int) -> bool:
    if wait.op.p2p and not wait.sure:
        return False  # posted early or left behind, as likely as waited for
    usual_ns = wait.op.usual_ns if has_history(wait.op) else 0
    return now_ns - wait.since_ns > max(AT_LEAST_NS, TWICE * usual_ns)


def _text(point: Point, now_ns: int) -> str:
    """`rank 1 waits 25s in barrier #41 of default_pg at train.py:88; how long that ...`."""
    waits = [wait for wait in point.waits if _lasts(wait, now_ns)]
    oldest = min(waits, key=lambda wait: wait.since_ns)
    age = duration((now_ns - oldest.since_ns) / 1e9)
    usual = "how long that usually takes is not known yet"
    if has_history(oldest.op):
        usual = f"there it usually takes {usual_text(oldest.op)}"
    ranks = wait_text(wait.rank for wait in waits)
    return f"{ranks} {age} in {op_text(point)}{at_line(oldest.op)}; {usual}"
