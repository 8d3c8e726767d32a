"""Ops that are over although their rank, whose GIL is held, still reports them as pending."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from diagnosis.scenes import COLLECTIVE, Scene, frame, only
from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.model import Verdict

SOLVE = frame("ext.py:60", "run", "lib.solve(x)")


def holds_gil(scene: Scene, rank: int, for_s: float = 11.0) -> None:
    """The main thread holds the GIL in a C call."""
    scene.silent(rank, for_s)
    scene.at(rank, SOLVE)
    scene.actors[rank].owns_gil = True


def after_an_op(kind: str = "all_reduce", *, silent: Sequence[int] = (1,)) -> Scene:
    """Three ranks: the `silent` ones never recorded the end of #8, the others wait in #9."""
    scene = Scene(3)
    others = [rank for rank in range(3) if rank not in silent]
    scene.waits(silent, kind, for_s=12)
    scene.does(others, kind, ago=12)
    scene.waits(others, "all_reduce", for_s=11.9)
    return scene


def is_gil_verdict(verdict: Verdict, number: int | None = 9) -> bool:
    assert verdict.op is not None
    assert (verdict.kind, verdict.confidence) == ("not_entered", "confirmed")
    return (verdict.why.cause, verdict.op.number) == ("gil", number)


@pytest.mark.parametrize("kind", ["all_reduce", "broadcast"])
def test_a_rank_that_holds_the_gil_after_an_op_has_not_entered_the_next(kind: str) -> None:
    scene = after_an_op(kind)
    holds_gil(scene, 1)
    found = scene.settle()
    verdict = only(found)
    assert is_gil_verdict(verdict)
    assert (verdict.culprits, fold(verdict.victims)) == ((1,), "0,2")
    assert "ext.py:60" in verdict.why.text
    assert found.health == "hung"
    assert found.ranks[1].state == "silent"
    assert found.ranks[1].blocked_on is None


def test_a_gil_holder_is_confirmed_only_when_its_progress_is_known() -> None:
    scene = after_an_op()
    holds_gil(scene, 1)
    for _ in range(12):
        judgement = scene.judge()
        verdict = only(judgement.frame)
        assert verdict.confidence == "suspect" or verdict.progress == "none"
        scene.pass_time(0.5)
    assert verdict.confidence == "confirmed"


def test_without_stacks_the_others_completion_shows_that_the_op_is_over() -> None:
    scene = after_an_op()
    scene.silent(1, 11)
    scene.actors[1].dump_error = "refused"
    verdict = only(scene.settle())
    assert is_gil_verdict(verdict)
    assert verdict.culprits == (1,)


def test_another_thread_may_hold_the_gil() -> None:
    scene = after_an_op()
    scene.silent(1, 11)  # its main thread has finished the op and waits for the GIL
    assert only(scene.settle()).culprits == (1,)


def test_two_silent_ranks_do_not_count_for_each_other() -> None:
    scene = after_an_op(silent=(1, 2))
    for rank in (1, 2):
        holds_gil(scene, rank)
        scene.actors[rank].dump_error = "refused"
    verdict = only(scene.settle())
    assert is_gil_verdict(verdict)
    assert verdict.culprits == (1, 2)


def test_several_asynchronous_ops_may_be_stale() -> None:
    scene = Scene(3)
    for ago in (12.0, 11.9, 11.8):
        scene.waits([1], "all_reduce", for_s=ago, sync=False)
        scene.does([0, 2], "all_reduce", ago=ago)
    scene.waits([0, 2], "all_reduce", for_s=11.7)
    scene.silent(1, 11)
    scene.actors[1].dump_error = "refused"  # asleep in a futex, as in a wait
    verdict = only(scene.settle())
    assert is_gil_verdict(verdict, 11)
    assert verdict.culprits == (1,)


def test_an_op_that_another_member_has_pending_is_still_a_wait() -> None:
    scene = Scene(4)
    scene.waits([0, 1, 2], "all_reduce", for_s=12)
    scene.silent(1, 11)  # its other thread holds the GIL
    scene.sleeps(3)
    verdict = only(scene.settle())
    assert (verdict.culprits, fold(verdict.victims)) == ((3,), "0-2")
    assert verdict.why.cause == "sleeping"


def test_an_op_that_all_have_entered_is_stuck_even_if_one_rank_is_silent() -> None:
    scene = Scene(3)
    scene.waits(range(3), "all_reduce", for_s=12)
    scene.silent(1, 11)
    assert only(scene.settle()).kind == "stuck"


def test_a_thread_that_holds_the_gil_elsewhere_is_not_in_its_pending_op() -> None:
    """The op is a receive, in a group whose op numbers cannot be compared."""
    scene = Scene(3, exact=False)
    scene.waits([1], "recv", for_s=12, p2p=True, peer=0)
    scene.waits([0, 2], "all_reduce", for_s=11.9)
    holds_gil(scene, 1)
    verdict = only(scene.settle())
    assert is_gil_verdict(verdict, None)
    assert verdict.culprits == (1,)


def test_a_receive_of_a_silent_rank_makes_no_deadlock() -> None:
    scene = Scene(2)
    scene.waits([1], "recv", for_s=12, p2p=True, peer=0)
    scene.waits([0], "all_reduce", for_s=11.9)
    scene.silent(1, 11)
    scene.actors[1].dump_error = "refused"
    verdict = only(scene.settle())
    assert is_gil_verdict(verdict, 8)
    assert verdict.culprits == (1,)


def test_a_silent_rank_waits_for_the_sleeping_sender_of_its_receive() -> None:
    scene = Scene(2)
    scene.waits([1], "recv", for_s=12, p2p=True, peer=0)
    scene.silent(1, 11)
    scene.sleeps(0)
    assert only(scene.settle()).culprits == (0,)


def test_a_living_receiver_in_a_broadcast_still_waits() -> None:
    """The root completes a broadcast early, so the others' completion shows nothing."""
    scene = Scene(3)
    scene.waits([1], "broadcast", for_s=12, root=0)
    scene.does([0, 2], "broadcast", ago=12, root=0)
    scene.waits([0, 2], "all_reduce", for_s=11.9)
    assert scene.actors[1].stack == COLLECTIVE
    verdict = only(scene.settle())
    assert (verdict.kind, verdict.culprits) == ("stuck", ())
    assert verdict.op is not None
    assert verdict.op.number == 8


def test_a_living_rank_has_left_an_op_that_the_others_completed_if_its_stack_is_elsewhere() -> None:
    scene = after_an_op()
    scene.sleeps(1)
    verdict = only(scene.settle())
    assert (verdict.kind, verdict.culprits, verdict.why.cause) == ("not_entered", (1,), "sleeping")
    assert verdict.op is not None
    assert verdict.op.number == 9


def test_a_stack_elsewhere_alone_does_not_show_that_an_op_is_over() -> None:
    scene = Scene(3)
    scene.waits([0, 1, 2], "all_reduce", for_s=12)
    scene.at(1, SOLVE, active=True)
    assert only(scene.settle()).kind == "stuck"
