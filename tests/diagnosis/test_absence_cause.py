"""Why a rank is absent: each cause, from updates and snapshots to the verdict."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec import structs
from msgspec.structs import replace

from diagnosis.absences import (
    CAUSES,
    RUNNING,
    absent,
    computes,
    debugged_by_hand,
    holds_gil,
    holds_gil_unseen,
    reads_file,
    reads_requests,
    sleeps,
    sleeps_unseen,
    stopped,
    stuck_worker,
)
from diagnosis.scenes import Scene, frame, only, told
from frtop_probe import wire
from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.model import OpName
from frtop_tui.diagnosis.words.absence import stacks_step
from frtop_tui.job.model import RankState
from frtop_tui.text.exit_status import exit_status


@pytest.mark.parametrize("play", [debugged_by_hand, reads_requests], ids=lambda p: p.__name__)
def test_a_rank_that_reads_its_input_is_never_called_hung(play: Callable[[Scene], None]) -> None:
    found = absent(play, for_s=300).settle()
    verdict = only(found)
    assert (verdict.kind, verdict.culprits, verdict.why.cause) == ("not_entered", (2,), "input")
    assert (verdict.confidence, verdict.progress) == ("confirmed", "unknown")
    assert "waits for input, or for somebody to type: read" in verdict.why.text
    assert "remove what asks at" in verdict.next
    assert found.health == "held up"


@pytest.mark.parametrize("stays", [True, False])
def test_of_a_rank_that_runs_a_child_that_stays_at_a_file_is_told(*, stays: bool) -> None:
    scene = absent(computes)
    scene.worker(2, 90112, "S", "openat", "/data/episode-7")
    for _ in range(10):
        scene.pass_time(0.5)
        (child,) = scene.actors[2].children
        scene.actors[2].children = [replace(child, cpu_ns=child.cpu_ns + (not stays))]
        evidence = only(scene.judge().frame).evidence
    text = "its child pid 90112 (pt_data_worker) is in openat /data/episode-7"
    assert (text in evidence) == stays


def test_a_thread_that_an_exception_ended_is_told_where_one_is_waited_for() -> None:
    def play(scene: Scene) -> None:
        queue = frame("/usr/lib/python3.11/queue.py:171", "get", "self.not_empty.wait()")
        scene.at(2, queue, frame("train.py:22", "batches"))
        scene.kernel(2, syscall="futex", wchan="futex_wait_queue")
        scene.actors[2].exception = wire.UncaughtException(
            "ValueError", "row 100 has no label\nat all", "labels", False,
            scene._ns(scene.actors[2], 12), (frame("train.py:18", "produce"),),
        )  # fmt: skip

    verdict = only(absent(play).settle())
    assert (verdict.kind, verdict.culprits, verdict.why.cause) == ("not_entered", (2,), "lock")
    at = "train.py:18 (produce)"
    ended = [line for line in verdict.evidence if line.startswith('its thread "labels" ended ')]
    assert ended[0].endswith(f" ago: ValueError: row 100 has no label at {at}")
    assert verdict.next == f"look at {at}: the thread that ended there may be waited for"


@pytest.mark.parametrize(("play", "cause", "text", "step"), CAUSES, ids=lambda v: getattr(
    v, "__name__", ""))  # fmt: skip
def test_each_cause_is_named_with_its_next_step_and_is_a_hang_without_progress(
    play: Callable[[Scene], None], cause: str, text: str, step: str
) -> None:
    found = absent(play).settle()
    verdict = only(found)
    assert (verdict.kind, verdict.culprits, verdict.why.cause) == ("not_entered", (2,), cause)
    assert fold(verdict.victims) == "0-1,3"
    assert text in verdict.why.text
    assert step in verdict.next
    if play not in RUNNING:
        assert (verdict.confidence, verdict.progress) == ("confirmed", "none")
        assert (found.health, exit_status(found)) == ("hung", 3)


def test_a_rank_whose_snapshot_shows_a_newer_op_is_not_blamed() -> None:
    scene = absent(reads_file)
    assert only(scene.settle()).why.cause == "file_io"
    before = dict(scene.actors[2].group_progress)
    scene.pass_time(6)  # until its next snapshot
    scene.does([2], "all_reduce", ago=0.1)  # it has entered, and sleeps after that op
    reported, scene.actors[2].group_progress = scene.actors[2].group_progress, before
    scene.sleeps(2)
    scene.judge()  # takes the snapshot
    scene.pass_time(0.2)
    assert scene.judge().frame.verdicts == ()
    scene.actors[2].group_progress = reported
    for rank in (0, 1, 3):
        scene.actors[rank].pending.clear()
    assert scene.settle(1).verdicts == ()


@pytest.mark.parametrize(("play", "state"), [
    (stopped, "stopped"), (holds_gil, "silent"), (sleeps, "late"), (stuck_worker, "late"),
    (computes, "late"), (reads_file, "late"),
])  # fmt: skip
def test_the_state_of_the_absent_rank(play: Callable[[Scene], None], state: RankState) -> None:
    found = absent(play).settle()
    assert {rank: view.state for rank, view in found.ranks.items()} == {
        0: "blocked", 1: "blocked", 2: state, 3: "blocked",
    }  # fmt: skip


def test_the_headline_names_the_rank_the_op_and_who_waits_and_evidence_tells_the_wait() -> None:
    verdict = only(absent(sleeps).settle(0))
    assert verdict.headline == (
        "rank 2 (node0 pid 1002) has not entered all_reduce #8 of default_pg; ranks 0-1,3 wait"
    )
    assert verdict.op == OpName("all_reduce", 8)
    assert verdict.evidence[0].startswith(
        "rank 0 waits in all_reduce #8 of default_pg for 10s (usually 20.0 ms there) at train.py:20"
    )
    assert "rank 2 last issued all_reduce #7 of default_pg at train.py:20" in verdict.evidence


def test_a_path_in_a_command_to_type_is_quoted() -> None:
    scene = absent(lambda scene: scene.kernel(2, "D", "read", "nfs_wait", "/x;rm -rf ~"))
    assert "stat -f '/x;rm -rf ~';" in only(scene.settle()).next


@pytest.mark.parametrize(("hosts", "says"), [
    (1, "kill -CONT 1002"), (2, "on node1: kill -CONT 1002"),
])  # fmt: skip
def test_a_command_to_type_names_its_host_if_there_are_several(hosts: int, says: str) -> None:
    scene = Scene(4, hosts=hosts)
    scene.waits([0, 1, 3], "all_reduce", for_s=60)
    scene.kernel(2, "T")
    assert only(scene.settle()).next == says


@pytest.mark.parametrize(("call", "other"), [("read", "write to"), ("write", "read from")])
def test_of_a_named_pipe_the_other_end_is_looked_for_not_a_file_system(
    call: str, other: str
) -> None:
    scene = absent(lambda scene: scene.kernel(2, "S", call, f"anon_pipe_{call}", "/tmp/results"))
    assert only(scene.settle()).next == (
        f"fuser -v /tmp/results: it is a pipe; which process should {other} it?"
    )


@pytest.mark.parametrize("timeout_s", [float("nan"), float("inf"), 1e300, -1.0])
def test_an_impossible_timeout_is_ignored(timeout_s: float) -> None:
    scene = Scene(4, timeout_s=timeout_s)
    scene.waits([0, 1, 3], "all_reduce", for_s=60)
    scene.sleeps(2)
    verdict = only(scene.settle())
    assert verdict.culprits == (2,)
    assert verdict.left_s is None


def test_refused_stacks_are_listed_as_missing() -> None:
    verdict = only(absent(sleeps_unseen).settle())
    assert verdict.missing == ("stacks of rank 2: ptrace is refused",)


@pytest.mark.parametrize("play", [play for play, *_ in CAUSES], ids=lambda p: p.__name__)
def test_the_next_step_names_no_tool_that_was_refused(play: Callable[[Scene], None]) -> None:
    scene = absent(play)
    scene.actors[2].dump_error = "refused"
    assert "py-spy" not in only(scene.settle()).next


def test_after_a_refusal_without_help_the_next_step_is_proc() -> None:
    scene = absent(holds_gil_unseen)
    scene.settle(0)
    view = scene.frame().ranks[2]
    assert view.snapshot is not None
    dump = wire.StackDump(1002, (), "refused")
    view = replace(view, snapshot=structs.replace(view.snapshot, dumps=(dump,)))
    assert stacks_step(view) == "grep -H . /proc/1002/status /proc/1002/wchan"


def test_without_snapshots_an_absence_stays_a_suspicion() -> None:
    scene = absent(sleeps)
    scene.look = lambda judgement: None  # type: ignore[method-assign]
    assert only(scene.settle(10)).confidence == "suspect"


def test_a_stopped_rank_is_confirmed_without_snapshots() -> None:
    scene = absent(stopped)
    scene.look = lambda judgement: None  # type: ignore[method-assign]
    assert told(scene.settle(3), "confidence", "progress") == ("confirmed", "none")


def test_a_moving_rank_is_not_blamed_beside_one_without_progress() -> None:
    scene = Scene(8)
    scene.waits([0, 1, 2, 3, 4, 5], "all_reduce", for_s=10)
    scene.sleeps(6)
    found = scene.judge().frame
    for step in range(10):
        scene.pass_time(0.5)
        scene.actors[7].step = step
        found = scene.judge().frame
    verdict = only(found)
    assert verdict.culprits == (6,)
    assert "rank 7 also absent, but making progress" in verdict.evidence


def test_numbers_that_cannot_be_compared_are_left_out() -> None:
    scene = Scene(4, exact=False)
    scene.waits([0, 1, 3], "all_reduce", for_s=10)
    scene.sleeps(2)
    verdict = only(scene.settle())
    assert verdict.culprits == (2,)
    assert verdict.op is not None
    assert verdict.op.number is None
    assert "#" not in " ".join([verdict.headline, *verdict.evidence])


def test_a_rank_at_a_store_key_is_not_blamed_while_another_may_set_it() -> None:
    scene = Scene(4)
    scene.waits([0], "all_reduce", for_s=10)
    for rank in (1, 2):
        scene.at(rank, frame("train.py:33", source="store.wait(keys)"))
        scene.kernel(rank, "S", "poll", "poll_schedule_timeout")
    scene.sleeps(3)
    verdict = only(scene.settle())
    assert (verdict.culprits, verdict.why.cause) == ((3,), "sleeping")
    assert "ranks 1-2 also absent: held by a lock or a store key" in verdict.evidence


def test_many_ranks_at_the_store_do_not_hide_the_one_elsewhere() -> None:
    scene = Scene(80)
    scene.waits([79], "all_reduce", for_s=10)
    for rank in range(78):
        scene.at(rank, frame("train.py:44", source="store.get('shard')"))
        scene.kernel(rank, "S", "poll", "poll_schedule_timeout")
    scene.sleeps(78)
    judged = scene.settle(8)
    assert judged.health == "hung"
    assert (only(judged).culprits, only(judged).why.cause) == ((78,), "sleeping")
