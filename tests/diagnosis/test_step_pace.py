"""A rank in a slow step is not hung: its own pace decides how long a step may take."""

from __future__ import annotations

import pytest

from diagnosis.scenes import Scene, only
from frtop_tui.diagnosis.model import Frame


def asleep(*, step_s: float, for_s: float) -> Frame:
    """Rank 2 sleeps for `for_s` and 4 s more, in a job that issues an op every `step_s`."""
    scene = Scene(4)
    for number in range(16):
        scene.does(range(4), "all_reduce", ago=for_s + step_s * (16 - number))
    scene.waits([0, 1, 3], "all_reduce", for_s=for_s)
    scene.sleeps(2)
    return scene.settle()


@pytest.mark.parametrize(("step_s", "for_s", "hung"), [
    (0.02, 4, True),
    (0.5, 5, False),  # not twenty steps yet
    (0.5, 6, False),  # just twenty: its next op may not be reported yet
    (0.5, 7, True),
    (6, 1, False),
    (6, 3, True),  # however slow the job is: at most twelve seconds
])  # fmt: skip
def test_a_rank_is_called_hung_after_twenty_usual_steps_or_twelve_seconds(
    step_s: float, for_s: float, hung: bool
) -> None:
    frame = asleep(step_s=step_s, for_s=for_s)
    verdict = only(frame)
    assert (verdict.culprits, verdict.why.cause) == ((2,), "sleeping")
    assert (verdict.confidence == "confirmed") is hung
    assert (frame.health == "hung") is hung


@pytest.mark.parametrize(("quick", "slow"), [(3, 4), (4, 3)])
def test_of_several_absent_ranks_the_slowest_pace_counts(quick: int, slow: int) -> None:
    scene = Scene(5)
    for number in range(10, 0, -1):
        scene.does([slow], "all_reduce", ago=4 + 0.9 * number)
        scene.does([quick, 0, 1, 2], "all_reduce", ago=4 + 0.05 * number)
    scene.waits([0, 1, 2], "all_reduce", for_s=4)
    scene.sleeps(quick)
    scene.sleeps(slow)
    frame = scene.settle(5)
    assert only(frame).culprits == (3, 4)
    assert frame.health == "held up"
    assert scene.settle(10).health == "hung"


@pytest.mark.parametrize(("sync", "hung"), [(True, True), (False, False)])
def test_what_others_kept_it_in_an_op_is_no_pause_of_its_own(sync: bool, hung: bool) -> None:
    """Two ops took 2 s each, as after a cable was out: whoever waits in them is no slower by it."""
    scene = Scene(4)
    for number in range(16):
        took_s = 2.0 if number in (8, 12) else 0.02
        later_s = 0.1 * (16 - number) + 2.0 * sum(number < one for one in (9, 13))
        scene.does(range(4), "all_reduce", ago=6 + later_s, usual_s=took_s, sync=sync)
    scene.waits([0, 1, 3], "all_reduce", for_s=6)
    scene.sleeps(2)
    assert (only(scene.settle()).confidence == "confirmed") is hung
