"""Histories and lanes for the tests of lanes."""

from __future__ import annotations

from collections.abc import Sequence

from frtop_probe import wire
from frtop_tui.features.timeline.lane import Lane
from frtop_tui.features.timeline.op_columns import OpColumns, columns_of
from history_rows import HistoryRow, packed

REDUCE = wire.Signature("all_reduce", "sum", inputs=(wire.TensorSpec("float32", (8,)),))
GATHER = wire.Signature("all_gather")
SITE = wire.Site("/src/train.py", 9, "train")
GROUP = wire.Group(1, "0", "dp", "gloo", "0-3")
OTHER = wire.Group(2, "1", "tp", "gloo", "0-1")

Row = tuple[int, int, int, int]
"""Group, number, issued, took."""


def history(
    rows: Sequence[Row],
    first: int = 1,
    *,
    flags: int = 0,
    signature: int = 1,
    marks: tuple[wire.Mark, ...] = (),
) -> wire.History:
    found = (
        HistoryRow(first + n, group, number, signature, 1, issued, took, 7, flags)
        for n, (group, number, issued, took) in enumerate(rows)
    )
    return wire.History((REDUCE, GATHER), (SITE,), packed(found), marks=marks)


def ops(rows: Sequence[Row], first: int = 1, *, until: int = 10**11, flags: int = 0) -> OpColumns:
    return columns_of(history(rows, first, flags=flags), known_until=until)


def lane(
    rank: int, rows: Sequence[Row], *, clock: int = 0, front: int | None = None, host: str = ""
) -> Lane:
    """A lane of both groups; `front` is the number that the rank has issued in the first."""
    columns = ops([(group, number, issued - clock, took) for group, number, issued, took in rows])
    own = max((number for group, number, _, _ in rows if group == 1), default=0)
    groups = {1: GROUP, 2: OTHER}
    fronts = {1: own if front is None else front}
    return Lane(rank, host or f"n{rank}", columns, clock, 10, groups, fronts)
