"""Ranks that arrive late, at last: what all have entered is not stuck at once."""

from __future__ import annotations

import pytest

from diagnosis.scenes import COLLECTIVE, Scene, frame, only, three_wait, told


def test_an_op_is_not_stuck_because_its_last_rank_took_long_to_come() -> None:
    scene = three_wait(4)
    scene.does([2], "all_reduce", number=8, ago=0.1)
    found = scene.judge().frame
    assert not found.verdicts
    assert found.health == "waiting"
    found = scene.settle(4)
    assert only(found).kind == "stuck"


def test_what_nobody_has_measured_yet_takes_its_time_from_the_last_one_on() -> None:
    scene = three_wait(40, usual_count=0)
    scene.waits([2], "all_reduce", for_s=10, usual_count=0)
    assert not scene.settle(4).verdicts
    assert only(scene.settle(20)).kind == "stuck"


def test_a_rank_that_joins_late_leaves_nothing_stuck() -> None:
    scene = Scene(4, begun=0)
    scene.in_pseudo([0, 1, 2], "init_process_group", 40)
    scene.in_pseudo([3], "init_process_group", 1)
    assert not scene.settle(4).verdicts


def test_a_message_is_not_in_question_once_its_other_half_came() -> None:
    scene = Scene(4)
    scene.waits([0], "recv", for_s=10, p2p=True, peer=1)
    scene.waits([1], "send", for_s=0.5, p2p=True, peer=0)
    assert not scene.judge().frame.verdicts
    assert {verdict.kind for verdict in scene.settle(4).verdicts} == {"undecided"}


def test_other_messages_that_a_peer_begins_do_not_make_this_one_fresh() -> None:
    scene = Scene(2)
    scene.waits([0], "recv", for_s=10, p2p=True, peer=1)
    scene.waits([1], "send", for_s=10, p2p=True, peer=0, sync=False)
    for _ in range(6):
        scene.waits([1], "irecv", for_s=0, p2p=True, peer=0, sync=False)
        scene.at(1, frame("serve.py:5"), active=True)
        found = scene.settle(1)
    assert {verdict.kind for verdict in found.verdicts} == {"undecided"}


def test_who_is_seen_on_its_way_into_the_op_is_not_said_to_wait_elsewhere() -> None:
    scene = three_wait()
    scene.at(2, frame("train.py:18"), active=True)
    assert only(scene.settle(3)).culprits == (2,)
    scene.at(2, *COLLECTIVE)
    for _ in range(20):
        found = scene.settle(0.5)
        stack = found.ranks[2].main_stack
        if stack is not None and stack.frames[: len(COLLECTIVE)] == COLLECTIVE:
            break
    else:
        pytest.fail("nobody looks again")
    assert not found.verdicts
    # Whatever it is that it waits in there, it stays.
    assert told(scene.settle(6), "culprits", "why.cause") == ((2,), "other_group")
