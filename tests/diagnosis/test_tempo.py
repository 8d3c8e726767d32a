"""A rank that is slow once is not hung: its own rhythm tells how long to wait for it."""

from __future__ import annotations

import pytest

from diagnosis.scenes import Scene, only
from frtop_tui.diagnosis.model import Frame


def asleep(*, step_s: float, for_s: float) -> Frame:
    """Rank 2 sleeps since `for_s`, and 4 s more, in a job that issues an op every `step_s`."""
    scene = Scene(4)
    for number in range(16):
        scene.does(range(4), "all_reduce", ago=for_s + step_s * (16 - number))
    scene.waits([0, 1, 3], "all_reduce", for_s=for_s)
    scene.sleeps(2)
    return scene.settle()


@pytest.mark.parametrize(("step_s", "for_s", "hung"), [
    (0.02, 4, True),
    (0.5, 5, False),  # not twenty steps yet
    (0.5, 6, False),  # just so many: its return may be on the way
    (0.5, 7, True),
    (6, 1, False),
    (6, 3, True),  # however slow the job: not for longer than twelve seconds
])  # fmt: skip
def test_hung_is_said_after_twenty_steps_or_some_seconds(
    step_s: float, for_s: float, hung: bool
) -> None:
    frame = asleep(step_s=step_s, for_s=for_s)
    verdict = only(frame)
    assert (verdict.culprits, verdict.why.cause) == ((2,), "sleeping")
    assert (verdict.confidence == "confirmed") is hung
    assert (frame.health == "hung") is hung


@pytest.mark.parametrize(("quick", "slow"), [(3, 4), (4, 3)])
def test_of_several_the_slowest_rhythm_counts(quick: int, slow: int) -> None:
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
