"""When a finding is more than a suspicion, and that every finding has a rule for that."""

from __future__ import annotations

import pytest

from diagnosis.scenes import SECOND, Scene, frame, only, three_wait
from frtop_tui.diagnosis.cases.declare import Rule
from frtop_tui.diagnosis.cases.registry import CASES
from frtop_tui.diagnosis.model import Verdict


def at_a_pipe(state: str, dump_error: str) -> Scene:
    """Rank 2 is at a pipe, as far as the kernel shows, and py-spy does not reach it."""
    scene = three_wait()
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


@pytest.mark.parametrize("dump_error", ["deadline", "refused"])
def test_who_may_poll_for_a_pending_op_is_not_named_before_that_is_seen(dump_error: str) -> None:
    """Rank 0 polls for an op of its pair, which rank 1 does not enter."""
    scene = Scene(4)
    scene.group("pair", [0, 1])
    scene.waits([0], "all_reduce", group="pair", sync=False, for_s=3.2)
    scene.waits([2, 3], "all_reduce", for_s=3.1)
    scene.sleeps(1)
    for rank in (0, 1):
        scene.actors[rank].dump_error = dump_error
    for tenth in range(60):
        scene.kernel(0, "R", cpu_ns=tenth * SECOND // 20)
        named = {rank for one in scene.judge().frame.verdicts for rank in one.culprits}
        assert named <= {1}
        scene.pass_time(0.1)
    assert named == {1}


@pytest.mark.parametrize("dump_error", ["", "deadline"])
def test_who_holds_the_gil_is_named_without_a_stack_although_an_op_is_pending(
    dump_error: str,
) -> None:
    scene = at_a_pipe("S", dump_error)
    scene.group("pair", [0, 2])
    scene.waits([2], "recv", group="pair", sync=False, p2p=True, peer=0, for_s=12)
    scene.silent(2, 10)
    scene.actors[2].owns_gil = True
    assert after(scene, 4).culprits == (2,)


def test_some_rule_applies_to_every_finding() -> None:
    assert Rule.__new__.__defaults__ is not None
    for kind in (kind for case in CASES for kind in case.kinds):
        others = kind.rules[-1].when is Rule.__new__.__defaults__[-1]
        assert others, f"the last rule of {kind} is for all others"


def test_no_two_cases_claim_the_same_findings() -> None:
    details = [kind.detail for case in CASES for kind in case.kinds]
    assert len(details) == len(set(details))
