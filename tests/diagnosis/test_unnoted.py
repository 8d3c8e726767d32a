"""Ops that are over, though the rank that holds its own GIL could not note it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from diagnosis.scenes import COLLECTIVE, Scene, frame, only
from frtop_probe.ring.fold import fold
from frtop_tui.diagnosis.model import Verdict

SOLVE = frame("ext.py:60", "run", "lib.solve(x)")


def held(scene: Scene, rank: int, for_s: float = 11.0) -> None:
    """The main thread holds the GIL in a C call of its own."""
    scene.silent(rank, for_s)
    scene.at(rank, SOLVE)
    scene.actors[rank].owns_gil = True


def after_an_op(kind: str = "all_reduce", *, silent: Sequence[int] = (1,)) -> Scene:
    """`silent` ranks of three never noted the end of #8; the others wait in #9."""
    scene = Scene(3)
    others = [rank for rank in range(3) if rank not in silent]
    scene.waits(silent, kind, for_s=12)
    scene.does(others, kind, ago=12)
    scene.waits(others, "all_reduce", for_s=11.9)
    return scene


def is_held(verdict: Verdict, number: int | None = 9) -> bool:
    assert verdict.op is not None
    assert (verdict.kind, verdict.confidence) == ("not_entered", "confirmed")
    return (verdict.why.cause, verdict.op.number) == ("gil", number)


@pytest.mark.parametrize("kind", ["all_reduce", "broadcast", "barrier"])
def test_a_rank_that_holds_the_gil_after_an_op_has_not_entered_the_next(kind: str) -> None:
    scene = after_an_op(kind)
    held(scene, 1)
    found = scene.settle()
    verdict = only(found)
    assert is_held(verdict)
    assert (verdict.culprits, fold(verdict.victims)) == ((1,), "0,2")
    assert "ext.py:60" in verdict.why.text
    assert found.health == "hung"
    assert found.ranks[1].state == "silent"
    assert found.ranks[1].blocked_on is None


def test_it_is_not_confirmed_before_it_is_known_whether_it_gets_anywhere() -> None:
    scene = after_an_op()
    held(scene, 1)
    for _ in range(12):
        judgement = scene.judge()
        verdict = only(judgement.frame)
        assert verdict.confidence == "suspect" or verdict.progress == "none"
        scene.pass_time(0.5)
    assert verdict.confidence == "confirmed"


def test_without_stacks_that_the_others_have_completed_it_tells() -> None:
    scene = after_an_op()
    scene.silent(1, 11)
    scene.actors[1].dump_error = "refused"
    verdict = only(scene.settle())
    assert is_held(verdict)
    assert verdict.culprits == (1,)


def test_the_thread_that_holds_it_may_be_another_one() -> None:
    scene = after_an_op()
    scene.silent(1, 11)  # its main thread is back from the op, and waits for the GIL in it
    assert only(scene.settle()).culprits == (1,)


def test_two_that_hold_their_gils_do_not_vouch_for_each_other() -> None:
    scene = after_an_op(silent=(1, 2))
    for rank in (1, 2):
        held(scene, rank)
        scene.actors[rank].dump_error = "refused"
    verdict = only(scene.settle())
    assert is_held(verdict)
    assert verdict.culprits == (1, 2)


def test_several_asynchronous_ops_that_were_not_noted() -> None:
    scene = Scene(3)
    for ago in (12.0, 11.9, 11.8):
        scene.waits([1], "all_reduce", for_s=ago, sync=False)
        scene.does([0, 2], "all_reduce", ago=ago)
    scene.waits([0, 2], "all_reduce", for_s=11.7)
    scene.silent(1, 11)
    scene.actors[1].dump_error = "refused"  # and asleep in a futex, as in a wait
    verdict = only(scene.settle())
    assert is_held(verdict, 11)
    assert verdict.culprits == (1,)


def test_what_not_all_others_have_completed_is_a_wait_still() -> None:
    scene = Scene(4)
    scene.waits([0, 1, 2], "all_reduce", for_s=12)
    scene.silent(1, 11)  # another thread of it holds the GIL
    scene.sleeps(3)
    verdict = only(scene.settle())
    assert (verdict.culprits, fold(verdict.victims)) == ((3,), "0-2")
    assert verdict.why.cause == "sleeping"


def test_all_in_one_op_is_stuck_though_one_is_silent() -> None:
    scene = Scene(3)
    scene.waits(range(3), "all_reduce", for_s=12)
    scene.silent(1, 11)
    assert only(scene.settle()).kind == "stuck"


def test_with_the_gil_in_another_place_it_is_no_wait_whatever_the_others_do() -> None:
    """A receive, and a group whose ops cannot be compared by number."""
    scene = Scene(3, exact=False)
    scene.waits([1], "recv", for_s=12, p2p=True, peer=0)
    scene.waits([0, 2], "all_reduce", for_s=11.9)
    held(scene, 1)
    verdict = only(scene.settle())
    assert is_held(verdict, None)
    assert verdict.culprits == (1,)


def test_a_receive_of_a_silent_rank_makes_no_circle() -> None:
    scene = Scene(2)
    scene.waits([1], "recv", for_s=12, p2p=True, peer=0)
    scene.waits([0], "all_reduce", for_s=11.9)
    scene.silent(1, 11)
    scene.actors[1].dump_error = "refused"
    verdict = only(scene.settle())
    assert is_held(verdict, 8)
    assert verdict.culprits == (1,)


def test_a_receive_of_a_silent_rank_from_one_that_sleeps_waits_for_it() -> None:
    scene = Scene(2)
    scene.waits([1], "recv", for_s=12, p2p=True, peer=0)
    scene.silent(1, 11)
    scene.sleeps(0)
    assert only(scene.settle()).culprits == (0,)


def test_a_receiver_that_lives_and_sits_in_a_broadcast_waits_still() -> None:
    """The root is through long before: that others have completed it says nothing."""
    scene = Scene(3)
    scene.waits([1], "broadcast", for_s=12, root=0)
    scene.does([0, 2], "broadcast", ago=12, root=0)
    scene.waits([0, 2], "all_reduce", for_s=11.9)
    assert scene.actors[1].stack == COLLECTIVE
    verdict = only(scene.settle())
    assert (verdict.kind, verdict.culprits) == ("stuck", ())
    assert verdict.op is not None
    assert verdict.op.number == 8


def test_a_stack_elsewhere_and_others_that_are_through_tell_of_a_living_rank() -> None:
    scene = after_an_op()
    scene.sleeps(1)
    verdict = only(scene.settle())
    assert (verdict.kind, verdict.culprits, verdict.why.cause) == ("not_entered", (1,), "sleeping")
    assert verdict.op is not None
    assert verdict.op.number == 9


def test_a_stack_elsewhere_alone_tells_nothing_of_a_living_rank() -> None:
    scene = Scene(3)
    scene.waits([0, 1, 2], "all_reduce", for_s=12)
    scene.at(1, SOLVE, active=True)
    assert only(scene.settle()).kind == "stuck"
