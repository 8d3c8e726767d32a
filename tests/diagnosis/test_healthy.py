"""What must never be called wrong."""

from __future__ import annotations

import pytest

from diagnosis.scenes import BACKWARD, LOCK, Scene, frame, one_sleeps, three_wait
from frtop_tui.diagnosis.model import Frame
from frtop_tui.text.exit_status import exit_status


def assert_quiet(found: Frame) -> None:
    assert not found.verdicts, [verdict.headline for verdict in found.verdicts]
    assert found.health == "healthy"
    assert exit_status(found) == 0


def assert_waiting(found: Frame) -> None:
    """Not called wrong, and not called healthy either."""
    assert not found.verdicts, [verdict.headline for verdict in found.verdicts]
    assert found.health == "waiting"
    assert exit_status(found) == 4


@pytest.mark.parametrize("waited", [0.01, 0.5, 2.0, 2.9])
def test_a_wait_shorter_than_three_seconds(waited: float) -> None:
    scene = three_wait(waited, usual_s=0.02)
    scene.at(2, frame("train.py:30"), active=True)
    assert_quiet(scene.settle(0))


@pytest.mark.parametrize("usual", [1.0, 2.0, 10.0])
def test_a_wait_shorter_than_five_times_the_usual(usual: float) -> None:
    scene = one_sleeps(4.9 * usual, usual_s=usual)
    assert_waiting(scene.settle(0))


@pytest.mark.parametrize("usual", [2.0, 10.0])
def test_a_wait_about_as_long_as_usual(usual: float) -> None:
    scene = three_wait(1.9 * usual, usual_s=usual)
    assert_quiet(scene.settle(0))


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_site_without_history_has_half_a_minute(count: int) -> None:
    scene = one_sleeps(29, usual_count=count)
    assert_waiting(scene.settle(0))
    scene.pass_time(2)
    assert scene.judge().frame.verdicts


def test_the_patience_is_at_most_a_third_of_the_timeout() -> None:
    scene = Scene(4, timeout_s=30)
    scene.waits([0, 1, 3], "all_reduce", for_s=9, usual_count=0)
    scene.sleeps(2)
    assert_waiting(scene.settle(0))
    scene.pass_time(2)
    assert scene.judge().frame.verdicts


def test_slow_but_moving() -> None:
    scene = Scene(4)
    for _ in range(12):
        scene.waits([0, 1, 3], "all_reduce", for_s=2.5, usual_s=2.4)
        assert_quiet(scene.judge().frame)
        for actor in scene.actors.values():
            actor.pending.clear()
        scene.does([2], "all_reduce", ago=0.1, usual_s=2.4)
        scene.pass_time(2.6)
        assert_quiet(scene.judge().frame)


def test_a_pending_op_while_the_next_batch_is_fetched() -> None:
    scene = Scene(2)
    scene.waits([0], "all_reduce", for_s=20, sync=False)
    scene.fetches(0, for_s=19)
    scene.at(1, frame("train.py:30"), active=True)
    scene.kernel(1, "R")
    assert_quiet(scene.settle())


@pytest.mark.parametrize("at_lock", [False, True])
def test_a_receive_that_was_posted_early_and_is_pending_for_ever(*, at_lock: bool) -> None:
    scene = Scene(4)
    scene.waits([0], "recv", for_s=3000, sync=False, p2p=True, peer=1)
    for rank in range(4):
        scene.at(rank, frame("train.py:30"), active=True)
        scene.kernel(rank, "R")
    if at_lock:
        scene.at(0, *LOCK)
        scene.kernel(0, "S", "clock_nanosleep")
    assert_quiet(scene.settle())


def test_everybody_in_a_long_backward_pass() -> None:
    scene = Scene(4)
    scene.waits(range(4), "all_reduce", for_s=8, sync=False)
    for rank in range(4):
        scene.at(rank, *BACKWARD, active=True)
        scene.kernel(rank, "R")
    assert_quiet(scene.settle())


def test_everybody_in_a_long_data_fetch() -> None:
    scene = Scene(4)
    for rank in range(4):
        scene.fetches(rank, for_s=100)
    assert_quiet(scene.settle())


def test_clean_exits_at_different_times() -> None:
    scene = Scene(4)
    scene.ends(0, exit_code=0, clean=True, ago=5)
    scene.ends(3, exit_code=0, clean=True, ago=1)
    for rank in (1, 2):
        scene.at(rank, frame("train.py:80"), active=True)
    assert_quiet(scene.settle())


def test_all_ended_cleanly() -> None:
    scene = Scene(4)
    for rank in range(4):
        scene.ends(rank, exit_code=0, clean=True, ago=5 - rank)
    found = scene.settle()
    assert not found.verdicts
    assert found.health == "ended"
    assert exit_status(found) == 0
    assert {view.state for view in found.ranks.values()} == {"done"}


def test_an_exit_a_moment_before_others_are_reported_to_finish() -> None:
    scene = Scene(4)
    scene.ends(0, exit_code=0, clean=True, ago=0.3)
    scene.waits([1, 2, 3], "barrier", for_s=0.5)
    assert_quiet(scene.settle(0))


def test_starting_up() -> None:
    scene = Scene(4, begun=0)
    scene.in_pseudo(range(4), "init_process_group", for_s=2)
    for actor in scene.actors.values():
        actor.groups.clear()
    found = scene.settle(0)
    assert not found.verdicts
    assert found.health == "starting"
    assert {view.state for view in found.ranks.values()} == {"starting"}


def test_a_short_silence_of_a_heartbeat() -> None:
    scene = Scene(4)
    scene.silent(1, 1.2)
    found = scene.judge().frame
    assert found.ranks[1].state == "moving"


def test_a_silent_rank_that_nobody_waits_for_is_shown_but_not_judged() -> None:
    scene = Scene(4)
    scene.silent(1, 8)
    found = scene.settle()
    assert found.ranks[1].state == "silent"
    assert_quiet(found)


def test_waits_of_a_side_thread_do_not_block_its_rank() -> None:
    scene = Scene(4)
    scene.waits([0], "barrier", for_s=1, thread=77)
    for rank in range(4):
        scene.at(rank, frame("train.py:30"), active=True)
    found = scene.settle(0)
    assert found.ranks[0].state == "moving"
    assert_quiet(found)
