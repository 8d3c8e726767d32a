"""What ranks do of their own in their steps, each beside ranks of the same work."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

import pytest
from msgspec.structs import replace

from diagnosis.scenes import Scene
from frtop_probe import wire
from frtop_tui.diagnosis.engine import Engine
from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.statistics import JobStatistics, StepSplit
from frtop_tui.widgets.lenses import MOST_STEPS, own_times

MS = 1_000_000


def judged(scene: Scene) -> Frame:
    scene.settle()
    return Engine().judge(scene.frame()).frame


def frame_of(ranks: int, steps: Mapping[int, tuple[StepSplit, ...]]) -> Frame:
    frame = judged(Scene(ranks))
    return replace(
        frame, statistics=JobStatistics(0, 60_000 * MS, 0, tuple(range(ranks)), steps=steps)
    )


def made(own_ms: float, *, count: int = 10, first: int = 0) -> tuple[StepSplit, ...]:
    """Steps of a second; what a rank does not do itself, it waits."""
    return tuple(
        StepSplit(n, (n + 1) * 1000 * MS, 1000 * MS, blocked_ns=1000 * MS - int(own_ms * MS))
        for n in range(first, first + count)
    )


def test_whom_all_wait_for_has_more_of_its_own_than_its_peers() -> None:
    found = own_times(frame_of(4, {rank: made(896 if rank == 2 else 746) for rank in range(4)}))
    assert found[2].own_ns == 896 * MS
    assert found[2].more_ns == 150 * MS
    assert found[2].share == 0.15
    assert [found[rank].more_ns for rank in (0, 1, 3)] == [0, 0, 0]


def test_one_of_two_is_compared_with_the_other_and_not_with_itself() -> None:
    found = own_times(frame_of(2, {0: made(500), 1: made(900)}))
    assert (found[0].more_ns, found[1].more_ns) == (-400 * MS, 400 * MS)


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 9])
def test_everybody_is_compared_with_the_median_of_all_others(count: int) -> None:
    """Also where several have the same time."""
    times = [100 + 10 * (rank * 7 % 5) for rank in range(count)]
    found = own_times(frame_of(count, {rank: made(ms) for rank, ms in enumerate(times)}))
    for rank, ms in enumerate(times):
        others = times[:rank] + times[rank + 1 :]
        assert found[rank].more_ns == (ms - median(others)) * MS


def test_steps_are_compared_by_their_number() -> None:
    """A step of an evaluation is long on all ranks; who still has it in its window is not late."""
    long = made(900, count=7)
    steps = {0: long + made(100, count=4, first=7), 1: long[4:] + made(100, count=8, first=7)}
    found = own_times(frame_of(2, steps))
    assert (found[0].more_ns, found[1].more_ns) == (0, 0)


def test_without_waits_or_with_few_steps_nothing_is_told() -> None:
    free = {rank: (*(StepSplit(n, n, 1000 * MS) for n in range(10)),) for rank in range(2)}
    assert own_times(frame_of(2, free)) == {}
    assert own_times(frame_of(2, {})) == {}
    few = own_times(frame_of(2, {0: made(500, count=4), 1: made(900, count=4)}))
    assert [one.more_ns for one in few.values()] == [None, None]


def test_stages_of_a_pipeline_are_compared_with_their_own_peers_only() -> None:
    """Ranks 0 and 1 are the first stage: they have more work than 2 and 3, as the job was built."""
    scene = Scene(4)
    for first in (0, 1):
        scene.group(f"pp{first}", (first, first + 2), "pp")
    for actor in scene.actors.values():
        actor.group_progress[2] = wire.GroupProgress(2, 0, 40, 0)
    frame = judged(scene)
    steps = {rank: made({0: 800, 1: 900}.get(rank, 300)) for rank in range(4)}
    found = own_times(replace(frame, statistics=JobStatistics(0, 1, 0, (0, 1, 2, 3), steps=steps)))
    assert [found[rank].more_ns for rank in range(4)] == [-100 * MS, 100 * MS, 0, 0]


def test_the_newest_steps_count() -> None:
    """So that thousands of ranks cost no more with long windows; medians need no more."""
    steps = {
        rank: made(900 if rank else 100, count=50)
        + made(500, count=MOST_STEPS, first=50)
        for rank in range(2)
    }  # fmt: skip
    found = own_times(frame_of(2, steps))
    assert (found[0].own_ns, found[0].more_ns) == (500 * MS, 0)
