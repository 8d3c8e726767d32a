"""Orders of the rows of statistics, and how much of a step a row takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from frtop_tui.job.statistics import CallRow


def waited_ns(row: CallRow) -> int:
    """Time that ranks waited for the last one to arrive, in sum, as far as the samples show.

    The median skew is lost by all but the last rank, in every op of a group.
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
"""By name, the figure by which rows are sorted, the largest first."""
SLOWEST: Final = "time"
"""The default order."""


def ordered(rows: Iterable[CallRow], order: str = SLOWEST) -> list[CallRow]:
    """The rows in one of `ORDERS`, or by `line`."""
    if order == "line":
        return sorted(rows, key=place_of)
    value = ORDERS[order]
    return sorted(rows, key=lambda row: (-value(row), -row.total_ns, place_of(row)))


def share_of_step(row: CallRow) -> float | None:
    """How much of the time of its ranks, and so of their steps, the ops of a row were pending.

    At most so much was lost to them: the rank may have computed meanwhile. Ops that overlap count
    twice, so it may be more than 1. None where no duration is known; ops whose end is not exact
    are taken to last as long as the others.
    """
    if not row.timed or not row.ranks:
        return None
    return row.rate * (row.total_ns / row.timed) / 1e9 / len(row.ranks)
