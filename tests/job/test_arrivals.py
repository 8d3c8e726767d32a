"""Who comes when, summed up."""

from __future__ import annotations

import pytest

from frtop_tui.job.arrivals import rank_delays, summary_of
from frtop_tui.job.naming import GroupKey
from frtop_tui.job.statistics import SampledGroup, SampledOp

MS = 1_000_000


def group(late_ms: float, error_ms: float | None, *, complete: bool = True) -> SampledGroup:
    error = None if error_ms is None else int(error_ms * MS)
    ops = tuple(
        SampledOp(n, {0: n * MS, 1: n * MS + int(late_ms * MS)}, complete, error_ns=error)
        for n in range(5)
    )
    return SampledGroup(GroupKey("g", "0-1"), (0, 1), ops)


@pytest.mark.parametrize(
    ("late_ms", "error_ms", "delay"),
    [
        (6.0, 0.4, 6 * MS),
        (6.0, 8.0, None),  # the clocks may be wrong by more
        (6.0, None, None),  # or by anything
        (0.5, 8.0, None),
        (0.5, 0.9, MS // 2),  # wrong by little, and it is little
    ],
)
def test_a_rank_is_late_only_beyond_the_error_of_the_clocks(
    late_ms: float, error_ms: float | None, delay: int | None
) -> None:
    assert rank_delays([group(late_ms, error_ms)])[1] == delay


def test_the_worst_group_of_a_rank_counts() -> None:
    assert rank_delays([group(2, 0), group(9, 0), group(5, 20)])[1] == 9 * MS


def test_of_ops_that_not_all_have_told_of_nobody_is_last() -> None:
    assert summary_of(group(6, 0, complete=False)) is None
