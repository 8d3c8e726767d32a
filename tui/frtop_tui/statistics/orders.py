"""Orders of the rows of statistics, and how much of a step a row takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from frtop_tui.job.statistics import CallRow


def waited_ns(row: CallRow) -> int:
    """The total time that ranks waited for the last one to arrive, estimated from the samples.

    In every op of a group, all but the last rank lose the median skew.
    """
    skew = row.skew_ns if row.mean_skew_ns is None else row.mean_skew_ns
    return (skew or 0) * row.count


def place_of(row: CallRow) -> tuple[str, int, str, str]:
    """A row's line in the program."""
    site = row.site
    if site is None:
        return ("", 0, row.kind, "")
    return (site.file, site.line, row.kind, site.function)


ORDERS: Final[dict[str, Callable[[CallRow], float]]] = {
    "waiting": waited_ns,
    "time": lambda row: row.total_ns,
    "skew": lambda row: row.skew_ns or -1,
    "p50": lambda row: row.p50_ns or -1,
    "p95": lambda row: row.p95_ns or -1,
    "max": lambda row: row.max_ns or -1,
    "count": lambda row: row.count,
    "bytes": lambda row: row.bytes,
    "bus": lambda row: row.bus_bandwidth or -1,
}
"""The figure to sort rows by, largest first, by name."""
SLOWEST: Final = "time"
"""The default order."""


def ordered(rows: Iterable[CallRow], order: str = SLOWEST) -> list[CallRow]:
    """The rows in one of `ORDERS`, or by `line`."""
    if order == "line":
        return sorted(rows, key=place_of)
    value = ORDERS[order]
    return sorted(rows, key=lambda row: (-value(row), -row.total_ns, place_of(row)))


def share_of_step(row: CallRow) -> float | None:
    """The share of its ranks' time, and so of their steps, in which a row's ops were pending.

    At most this much was lost to them: the rank may have computed meanwhile. Overlapping ops count
    twice, so it may exceed 1. None if no duration is known; ops whose end is not exact count as
    long as the others.
    """
    if not row.timed or not row.ranks:
        return None
    return row.rate * (row.total_ns / row.timed) / 1e9 / len(row.ranks)
