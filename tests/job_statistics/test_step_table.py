"""Where a step goes: medians of all ranks, and who has the most time of its own."""

from __future__ import annotations

from frtop_tui.job.statistics import JobStatistics, StepSplit
from frtop_tui.statistics.step_table import FEWEST_STEPS, MOST_STEPS, newest_steps, step_rows
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
