"""Places ops in lanes of a trace: in one lane slices may not overlap."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from frtop_tui.files.formats.rank_ops import RankOp
from frtop_tui.job.naming import group_label, printable

OUTSIDE = "outside of groups"


@dataclass(frozen=True, slots=True)
class Slice:
    """An op in its lane, from `begin_ns` on; `took_ns` is what is drawn, known or not."""

    one: RankOp
    lane: int
    begin_ns: int
    took_ns: int


def lane_name(one: RankOp) -> str:
    """The group's name, or what else the op belongs to."""
    if one.group is None:
        return OUTSIDE
    label = group_label(one.group.name, one.group.description)
    return printable(f"{label} ({one.group.backend})" if one.group.backend else label)


def slices_of(ops: Iterable[RankOp], end_ns: int) -> tuple[list[Slice], Sequence[str]]:
    """The slices of one rank, and the names of its lanes.

    Args:
        ops: in the order in which they were issued.
        end_ns: up to when pending ops are drawn.
    """
    lanes: list[str] = []
    free_at: list[int] = []  # by lane, when its last slice ends
    by_group: dict[object, list[int]] = {}
    slices = []
    for one in ops:
        took = _drawn_ns(one, end_ns)
        key = one.group.id if one.group is not None else None
        mine = by_group.setdefault(key, [])
        lane = next((lane for lane in mine if free_at[lane] <= one.begin_ns), None)
        if lane is None:
            lane = len(lanes)
            more = f" +{len(mine)}" if mine else ""
            lanes.append(f"{lane_name(one)}{more}")
            free_at.append(0)
            mine.append(lane)
        free_at[lane] = one.begin_ns + took
        slices.append(Slice(one, lane, one.begin_ns, took))
    return slices, lanes


def _drawn_ns(one: RankOp, end_ns: int) -> int:
    """How long the slice is: of an end that nobody saw, only the beginning is drawn."""
    if one.end == "pending":
        return max(1000, end_ns - one.begin_ns)
    return max(1000, one.end_ns - one.begin_ns) if one.end_ns else 1000
