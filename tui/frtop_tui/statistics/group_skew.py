"""How far apart the ranks of each group arrive at its collectives, by the sampled ops."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import NamedTuple

from frtop_tui.job.naming import GroupKey
from frtop_tui.job.statistics import JobStatistics


class GroupSkew(NamedTuple):
    """The times from the first to the last arrival at `sampled` ops of one group.

    Clocks of hosts may explain `error_ns` of them (None: not measured). `last` is the rank that
    arrived last most often, and at how many of these ops.
    """

    group: GroupKey
    sampled: int
    median_ns: int
    max_ns: int
    error_ns: int | None
    last: tuple[int, int]


def group_skews(found: JobStatistics) -> list[GroupSkew]:
    """One for each group with ops of which all arrivals are known."""
    skews = []
    for one in found.groups:
        ops = [op for op in one.arrivals if op.complete and len(op.arrivals) > 1]
        if ops:
            times = [op.skew_ns for op in ops]
            errors = [op.error_ns for op in ops]
            known = [error for error in errors if error is not None]
            error_ns = max(known) if len(known) == len(errors) else None
            (last,) = Counter(op.last_rank for op in ops).most_common(1)
            skews.append(
                GroupSkew(one.group, len(ops), round(median(times)), max(times), error_ns, last)
            )
    return skews
