"""Where a step goes: medians of all ranks, and who has the most time of its own."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from frtop_tui.job.naming import GroupKey
from frtop_tui.job.statistics import CallRow, JobStatistics, StepSplit
from frtop_tui.statistics.step_table import (
    FEWEST_STEPS,
    MOST_STEPS,
    newest_steps,
    stage_rows,
    step_rows,
)
from frtop_tui.text.statistics_table import step_table
from job_statistics.ranks import MS


def steps(count: int, own_ms: int = 300) -> tuple[StepSplit, ...]:
    """Steps of a second each, the oldest first."""
    return tuple(
        StepSplit(n, n * 1000 * MS, 1000 * MS, pending_ns=(1000 - own_ms) * MS)
        for n in range(count)
    )


def test_ranks_with_the_most_time_of_their_own_are_named_first() -> None:
    found = {rank: steps(8, own_ms=600 if rank == 5 else 300 + rank) for rank in range(8)}
    job, *named = step_rows(JobStatistics(0, 1, 0, steps=found))
    assert (job.rank, job.steps, job.steps_per_s) == (None, 64, 1.0)
    assert [(row.rank, row.own_ns) for row in named] == [
        (5, 600 * MS), (7, 307 * MS), (6, 306 * MS), (4, 304 * MS)
    ]  # fmt: skip


def test_a_pipeline_has_a_row_for_each_stage() -> None:
    """Two pipelines of three stages: ranks 0, 2, 4 and 1, 3, 5."""
    found = {rank: steps(8) for rank in range(6)}
    for rank in range(6):
        bubble = (100 + 100 * (rank // 2)) * MS
        found[rank] = tuple(replace(step, bubble_ns=bubble) for step in found[rank])
    groups = tuple(GroupKey(name, ranks) for name, ranks in (("pp", "0,2,4"), ("pp", "1,3,5")))
    messages = CallRow("send", groups, None, 0, tuple(range(6)), p2p=True)
    statistics = JobStatistics(0, 1, 0, calls=(messages,), steps=found)
    told = [(row.stage, row.ranks, row.bubble_ns) for row in stage_rows(statistics)]
    assert told == [(0, (0, 1), 100 * MS), (1, (2, 3), 200 * MS), (2, (4, 5), 300 * MS)]
    titles, *rows = step_table(statistics, step_rows(statistics))
    at = titles.index("bubble")
    assert [row[at] for row in rows[:5]] == [
        "200 ms", "20 %", "100 ms 10 %", "200 ms 20 %", "300 ms 30 %"
    ]  # fmt: skip


@pytest.mark.parametrize("p2p", [False, True])
def test_a_bubble_is_a_column_only_where_ranks_send_messages(p2p: bool) -> None:
    calls = (CallRow("send", (GroupKey("0", "0-1"),), None, 0, (0, 1), p2p=p2p),)
    statistics = JobStatistics(0, 1, 0, calls=calls, steps={0: steps(8)})
    titles, median, *_ = step_table(statistics, step_rows(statistics))
    assert ("bubble" in titles) == p2p
    if p2p:
        assert median[titles.index("bubble")] == "-", "waits are not recorded"


def test_of_many_ranks_the_newest_steps_count() -> None:
    """10,000 ranks make millions of steps while a screen is open; medians need no more."""
    ranks = 2 * MOST_STEPS // 1000
    newest = newest_steps(JobStatistics(0, 1, 0, steps=dict.fromkeys(range(ranks), steps(1000))))
    assert {len(those) for those in newest.values()} == {MOST_STEPS // ranks}
    assert newest[0][-1].number == 999


def test_a_median_has_steps_enough_however_many_ranks_there_are() -> None:
    ranks = 2 * MOST_STEPS // FEWEST_STEPS
    newest = newest_steps(JobStatistics(0, 1, 0, steps=dict.fromkeys(range(ranks), steps(60))))
    assert len(newest[0]) == FEWEST_STEPS


def test_of_few_ranks_every_step_counts() -> None:
    assert len(newest_steps(JobStatistics(0, 1, 0, steps={0: steps(5000)}))[0]) == 5000
