"""When a finding is more than a suspicion, where its stacks are missing."""

from __future__ import annotations

import pytest

from diagnosis.scenes import Scene, frame, only
from frtop_tui.diagnosis.model import Verdict


def at_a_pipe(state: str, dump_error: str) -> Scene:
    """Rank 2 is at a pipe, as far as the kernel shows, and py-spy does not reach it."""
    scene = Scene(4)
    scene.waits([0, 1, 3], "all_reduce", for_s=10)
    scene.kernel(2, state, "read", "pipe_read", "pipe:[17]")
    scene.actors[2].dump_error = dump_error
    return scene


def after(scene: Scene, seconds: float) -> Verdict:
    return only(scene.settle(seconds))


@pytest.mark.parametrize(("state", "dump_error", "seconds", "confidence"), [
    ("S", "refused", 4, "confirmed"),  # nothing more will come
    ("S", "failed", 4, "confirmed"),
    ("D", "deadline", 4, "confirmed"),  # the kernel tells all of it
    ("S", "deadline", 4, "suspect"),
    ("S", "deadline", 13, "confirmed"),
])  # fmt: skip
def test_what_the_kernel_alone_shows_is_confirmed_late_while_stacks_may_still_come(
    state: str, dump_error: str, seconds: float, confidence: str
) -> None:
    verdict = after(at_a_pipe(state, dump_error), seconds)
    assert (verdict.confidence, verdict.culprits) == (confidence, (2,))
    assert "by the kernel alone" in verdict.why.text


def test_a_stack_that_comes_after_all_settles_it() -> None:
    scene = at_a_pipe("S", "deadline")
    assert after(scene, 4).confidence == "suspect"
    scene.actors[2].dump_error = ""
    scene.at(2, frame("train.py:33", source="answer = pipe.read(8)"))
    verdict = after(scene, 2)
    assert (verdict.confidence, "kernel" in verdict.why.text) == ("confirmed", False)
