"""Which op a rank is blocked in, and when it is in none."""

from __future__ import annotations

import pytest

from diagnosis.scenes import BACKWARD, COLLECTIVE, LOCK, Scene, frame, only, three_wait, told
from frtop_probe import wire
from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.blocked.blocked_op import wait_of
from frtop_tui.text.exit_status import exit_status


def test_a_pending_op_alone_blocks_nobody() -> None:
    scene = Scene(2)
    scene.waits([0], "all_reduce", for_s=50, sync=False)
    scene.at(0, frame("train.py:3"), active=True)
    scene.kernel(0, "R")
    found = scene.settle()
    assert found.ranks[0].state == "moving"
    assert found.ranks[0].blocked_on is None


def test_a_thread_that_issued_a_later_op_is_not_blocked_in_the_earlier() -> None:
    scene = Scene(2)
    scene.waits([0], "all_reduce", for_s=50)
    scene.does([0], "all_reduce", ago=40)
    scene.at(0, frame("train.py:3"), active=True)
    scene.kernel(0, "R")
    scene.hear()
    assert wait_of(scene.frame().ranks[0]) is None


@pytest.mark.parametrize("stack", [
    BACKWARD,
    (frame("train.py:21", source="work.wait()"),),
    (frame("/venv/lib/python3.11/site-packages/frtop_probe/recorder/ops/waits.py:91", "wait"),
     frame("train.py:21", source="handle.wait()")),
], ids=["backward", "handle", "our wrapper"])  # fmt: skip
def test_who_is_asleep_in_a_wait_with_ops_pending_is_blocked(
    stack: tuple[wire.TraceFrame, ...],
) -> None:
    scene = three_wait(sync=False)
    for rank in (0, 1, 3):
        scene.at(rank, *stack)
    scene.sleeps(2)
    verdict = only(scene.settle())
    assert (verdict.culprits, fold(verdict.victims)) == ((2,), "0-1,3")


def test_without_stacks_a_sleeping_rank_counts_as_blocked() -> None:
    scene = three_wait(sync=False)
    for rank in range(4):
        scene.actors[rank].dump_error = "refused"
    scene.kernel(2, "S", "clock_nanosleep")
    verdict = only(scene.settle())
    assert verdict.culprits == (2,)
    assert any("seen from outside only" in line for line in verdict.evidence)


def test_a_rank_at_a_lock_with_pending_ops_is_blamed() -> None:
    scene = Scene(4)
    scene.waits([2], "all_reduce", for_s=20, sync=False)
    scene.does([0, 1, 3], "all_reduce", ago=20)
    scene.waits([0, 1, 3], "all_reduce", for_s=10)
    scene.at(2, *LOCK)
    assert told(scene.settle(), "culprits", "why.cause") == ((2,), "lock")


def test_an_untracked_op_blocks_a_rank_whose_stack_waits_for_the_device() -> None:
    scene = Scene(4, backend="nccl")
    scene.waits([0, 1, 3], "all_reduce", for_s=10, tracked=False, sync=False)
    synchronize = frame(
        "/venv/lib/python3.11/site-packages/torch/cuda/__init__.py:1085", "synchronize"
    )
    for rank in (0, 1, 3):
        scene.at(rank, synchronize, active=True)
    scene.sleeps(2)
    scene.settle()
    assert only(scene.settle()).culprits == (2,)


def test_a_joined_thread_in_an_op_blocks_its_rank() -> None:
    scene = Scene(4)
    scene.group("ckpt", range(4), "ckpt")
    scene.waits([0, 1, 2], "all_gather", for_s=12, group="ckpt", thread=77)
    for rank in (0, 1, 2):
        scene.at(rank, *LOCK)
    scene.sleeps(3)
    verdict = only(scene.settle())
    assert (verdict.culprits, fold(verdict.victims)) == ((3,), "0-2")


@pytest.mark.parametrize(("stack", "kind", "status"), [
    ((frame("train.py:77", source="loss = loss.item()"),), "undecided", 4),
    (COLLECTIVE, "stuck", 3),
])  # fmt: skip
def test_a_device_op_that_all_have_issued_is_stuck_only_if_they_are_seen_in_it(
    stack: tuple[wire.TraceFrame, ...], kind: str, status: int
) -> None:
    scene = Scene(4, backend="nccl")
    scene.does(range(4), "barrier", ago=40, tracked=False)
    for rank in range(4):
        scene.at(rank, *stack)
    for _ in range(12):
        judgement = scene.judge()
        for actor in scene.actors.values():  # an open rank view requests them
            answer = wire.SnapshotResponse(1, "node0", (scene.look_of(actor),))
            scene.state.apply_snapshots("node0", answer)
        scene.pass_time(0.5)
    assert (only(judgement.frame).kind, exit_status(judgement.frame)) == (kind, status)


def test_a_rank_that_polls_an_op_for_completion_waits_for_it() -> None:
    scene = Scene(4)
    for rank in (0, 2, 3):
        scene.waits([rank], "all_reduce", for_s=20, sync=False)
        scene.at(rank, frame("train.py:21", source="while not work.is_completed(): sleep(0.01)"))
        scene.kernel(rank, "S", "clock_nanosleep", "hrtimer_nanosleep")
    scene.sleeps(1)
    verdict = only(scene.settle(6))
    assert (verdict.kind, verdict.culprits, verdict.why.cause) == ("not_entered", (1,), "sleeping")
    assert (verdict.confidence, verdict.progress) == ("confirmed", "none")


def test_a_wait_that_the_recorder_saw_begin_needs_no_stack() -> None:
    scene = Scene(4)
    scene.waits([0, 1, 3], "all_gather", for_s=30, sync=False)
    scene.waits([0, 1, 3], "all_reduce", for_s=20, sync=False, waited_s=12)
    for rank in range(4):
        scene.actors[rank].dump_error = "refused"
    scene.hear()
    wait = wait_of(scene.frame().ranks[0])
    assert wait is not None
    assert wait.op.signature is not None
    assert (wait.op.signature.kind, wait.sure) == ("all_reduce", True)
    assert 11e9 < scene.frame().now_ns - wait.since_ns < 14e9


def test_a_wait_of_another_thread_does_not_block_the_main_thread() -> None:
    scene = Scene(2)
    scene.waits([0], "all_gather", for_s=30, sync=False, waited_s=25)
    scene.at(0, *LOCK)
    scene.settle()
    assert wait_of(scene.frame().ranks[0]) is None


def test_a_wait_for_a_device_blocks_though_its_op_is_not_tracked() -> None:
    scene = Scene(2)
    scene.waits([0], "barrier", for_s=30, tracked=False, waited_s=30)
    scene.hear()
    wait = wait_of(scene.frame().ranks[0])
    assert wait is not None
    assert wait.sure
