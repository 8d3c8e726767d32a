"""Black boxes show how a job ended that nobody watched."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from diagnosis.scenes import JOB, SECOND, Scene, only
from files.boxes import BoxRecorder, write_boxes
from files.frames import notes
from frtop_probe import wire
from frtop_tui.errors import Unreadable
from frtop_tui.files.loader import open_paths
from frtop_tui.text.exit_status import exit_status
from frtop_tui.text.plain import text

TERM = 15


def hung(hosts: int = 1, *, with_snapshots: bool = True) -> tuple[Scene, BoxRecorder]:
    """Rank 2 sleeps, the others wait for it; two snapshots were taken of ranks 0 and 2."""
    scene = Scene(4, hosts=hosts)
    scene.waits([0, 1, 3], "all_reduce", for_s=60)
    scene.sleeps(2)
    recorder = BoxRecorder(scene)
    for _ in range(2):
        if with_snapshots:
            recorder.take_snapshots(2, 0)
        scene.pass_time(3)
    return scene, recorder


def end_all(scene: Scene, recorder: BoxRecorder) -> None:
    recorder.record_state_before_death()
    scene.pass_time(0.4)
    for rank in range(4):
        scene.ends(rank, signal=TERM, ago=0.2 - rank / 100)


@pytest.mark.parametrize("hosts", [1, 2])
def test_a_hang_ended_by_the_launcher_is_a_hang(tmp_path: Path, hosts: int) -> None:
    scene, recorder = hung(hosts)
    end_all(scene, recorder)
    frame = open_paths(write_boxes(tmp_path, recorder.boxes()))
    verdict = only(frame)
    assert verdict.kind == "not_entered"
    assert verdict.culprits == (2,)
    assert verdict.confidence == "confirmed"
    assert verdict.headline == (
        f"rank 2 ({scene.hosts[-1]} pid 1002) had not entered all_reduce #8 of default_pg;"
        " ranks 0-1,3 waited; then ranks 0-3 were ended by SIGTERM"
    )
    assert verdict.why.cause == "sleeping"
    assert "py-spy" not in verdict.next or "if it happens again" in verdict.next
    assert frame.health == "hung"
    assert exit_status(frame) == 3
    assert {view.state for view in frame.ranks.values()} == {"dead"}
    assert frame.ranks[2].main_stack is not None
    assert frame.recorded is not None
    assert frame.recorded.kind == "black box"
    assert any("clocks of 2 hosts" in note for note in frame.recorded.notes) == (hosts == 2)
    lines = text(frame)
    assert any("then ranks 0-3 were ended by SIGTERM" in line for line in lines)
    assert not any("killed by its own timeout in" in line for line in lines)
    assert any("its own timeout would have come 28m54s later" in line for line in lines)


def test_snapshots_taken_at_different_times_on_many_hosts_are_all_used(tmp_path: Path) -> None:
    scene = Scene(48, hosts=24)
    scene.waits([r for r in range(48) if r != 2], "all_reduce", for_s=60)
    scene.sleeps(2)
    recorder = BoxRecorder(scene)
    for _ in range(2):
        for rank in range(0, 48, 2):
            recorder.take_snapshots(rank)
            scene.pass_time(0.15)
    recorder.record_state_before_death()
    scene.pass_time(0.4)
    for rank in range(48):
        scene.ends(rank, signal=TERM, ago=0.2)
    frame = open_paths(write_boxes(tmp_path, recorder.boxes()))
    verdict = only(frame)
    assert verdict.culprits == (2,)
    assert verdict.why.cause == "sleeping"
    assert verdict.confidence == "confirmed"
    assert all(frame.ranks[rank].main_stack is not None for rank in range(0, 48, 2))


def test_the_culprit_is_named_without_any_snapshot(tmp_path: Path) -> None:
    scene, recorder = hung(with_snapshots=False)
    end_all(scene, recorder)
    verdict = only(open_paths(write_boxes(tmp_path, recorder.boxes())))
    assert (verdict.kind, verdict.culprits, verdict.confidence) == ("not_entered", (2,), "suspect")
    assert "then ranks 0-3 were ended by SIGTERM" in verdict.headline


TIMED_OUT = (
    "[/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78]"
    " Timed out waiting 60000ms for recv operation to complete"
)


def raise_in_op(scene: Scene, rank: int, kind: str, text: str = "", *, ago: float) -> None:
    """The op of the rank fails, and the rank raises but does not end yet."""
    actor = scene.actors[rank]
    scene.raises(rank, kind, text, ago=ago)
    actor.exit_info = None
    assert actor.exception is not None
    for op in actor.pending:
        failed = structs.replace(op, done_ns=-(actor.exception.at_ns - SECOND // 100))
        actor.recent = [failed if known is op else known for known in actor.recent]
        progress = actor.group_progress[op.group]
        actor.group_progress[op.group] = structs.replace(progress, last=failed)
    actor.pending = []


def end_rank(scene: Scene, rank: int, *, signal: int | None = None, ago: float) -> None:
    scene.ends(rank, signal=signal, exit_code=None if signal else 1, ago=ago)


@pytest.mark.parametrize("hosts", [1, 2])
def test_a_hang_whose_ops_failed_before_the_agent_noticed_keeps_its_cause(
    tmp_path: Path, hosts: int
) -> None:
    scene, recorder = hung(hosts)
    for rank in (0, 1, 3):
        raise_in_op(scene, rank, "RuntimeError", TIMED_OUT, ago=0.2 - rank / 100)
    recorder.record_state_before_death()
    scene.pass_time(1.5)
    recorder.take_snapshots(2)
    for rank in (0, 1, 3):
        end_rank(scene, rank, ago=0.4)
    end_rank(scene, 2, signal=TERM, ago=0.2)
    frame = open_paths(write_boxes(tmp_path, recorder.boxes()))
    verdict = only(frame)
    assert verdict.headline == (
        f"rank 2 ({scene.hosts[-1]} pid 1002) had not entered all_reduce #8 of default_pg in time;"
        " ranks 0-1,3 gave up waiting after 1m00s, then rank 2 was ended by SIGTERM"
    )
    assert (verdict.why.cause, verdict.confidence) == ("sleeping", "confirmed")
    assert "train.py:33" in verdict.next
    lines = text(frame)
    assert "HUNG for 1m07s" in lines[0]
    assert any(TIMED_OUT.partition("] ")[2] in line for line in lines)
    assert not any(".cc:78" in line or "would have come" in line for line in lines)


def test_a_death_comes_before_the_hang_of_the_same_rank(tmp_path: Path) -> None:
    scene, recorder = hung(with_snapshots=False)
    recorder.record_state_before_death()
    scene.pass_time(1)
    scene.raises(2, "OSError", "no space left on device", ago=0.8)
    for rank in (0, 1, 3):
        scene.ends(rank, signal=TERM, ago=0.3)
    verdicts = open_paths(write_boxes(tmp_path, recorder.boxes())).verdicts
    assert [(v.kind, v.culprits) for v in verdicts] == [("dead", (2,)), ("not_entered", (2,))]
    assert "ended by SIGTERM" in verdicts[1].headline


def test_a_mismatch_that_killed_the_job_is_found_in_the_histories(tmp_path: Path) -> None:
    scene = Scene(3)
    recorder = BoxRecorder(scene)
    recorder.record_state_before_death()
    scene.pass_time(1)
    scene.waits([0, 2], "all_reduce", for_s=0.5)
    scene.waits([1], "all_reduce", for_s=0.5, inputs=(wire.TensorSpec("float32", (1025,)),))
    for rank in range(3):
        scene.ends(rank, signal=6, ago=0.3)
    verdict = open_paths(write_boxes(tmp_path, recorder.boxes())).verdicts[0]
    assert (verdict.kind, verdict.culprits) == ("mismatch", (1,))


def test_hosts_without_a_box_are_reported_missing(tmp_path: Path) -> None:
    scene, recorder = hung(hosts=2)
    end_all(scene, recorder)
    frame = open_paths(write_boxes(tmp_path, recorder.boxes(0)))
    assert frame.coverage.unreachable == (2, 3)
    assert any("no black box contains ranks 2-3" in note.text for note in frame.coverage.notes)


def test_ranks_of_an_incomplete_box_are_unreachable(tmp_path: Path) -> None:
    scene, recorder = hung(hosts=2)
    recorder.record_state_before_death()
    scene.pass_time(0.2)
    first = recorder.boxes(0, complete=False)
    scene.pass_time(10)
    scene.ends(2, signal=9, ago=10)
    scene.ends(3, signal=TERM, ago=9)
    frame = open_paths(write_boxes(tmp_path, [*first, *recorder.boxes(1)]))
    assert [frame.ranks[rank].state for rank in range(4)] == [
        "unreachable",
        "unreachable",
        "dead",
        "dead",
    ]
    assert "node0" in notes(frame)


def test_the_newest_of_several_jobs_is_loaded_and_the_others_are_named(tmp_path: Path) -> None:
    scene, recorder = hung()
    end_all(scene, recorder)
    (old,) = recorder.boxes()
    other = wire.Job("node0", 29501, 4, "other", 0, "n2", "pipe.py")
    new = structs.replace(old, host="node9", job=other, wall_ns=old.wall_ns + SECOND)
    paths = write_boxes(tmp_path, [old, new])
    frame = open_paths([tmp_path])
    assert frame.job == other
    assert frame.other_jobs == (scene.job,)
    assert open_paths(paths, "run").job == scene.job
    with pytest.raises(Unreadable, match=r"no job is called 'x'.*pipe\.py"):
        open_paths(paths, "x")


def test_damaged_boxes_are_named_and_the_others_are_used(tmp_path: Path) -> None:
    scene, recorder = hung()
    end_all(scene, recorder)
    paths = write_boxes(tmp_path, recorder.boxes())
    broken = tmp_path / "broken.box"
    broken.write_bytes(paths[0].read_bytes()[:200])
    frame = open_paths([broken, *paths])
    assert only(frame).kind == "not_entered"
    assert "broken.box is truncated" in notes(frame)
    with pytest.raises(Unreadable, match=r"broken\.box is truncated"):
        open_paths([broken])


def test_the_complete_box_of_two_agents_of_a_host_is_used(tmp_path: Path) -> None:
    scene, recorder = hung()
    recorder.record_state_before_death()
    early = structs.replace(recorder.boxes(complete=False)[0], instance="first")
    end_all(scene, recorder)
    late = recorder.boxes()
    (tmp_path / "a").mkdir()
    paths = [*write_boxes(tmp_path / "a", [early]), *write_boxes(tmp_path, late)]
    frame = open_paths(paths)
    assert {view.state for view in frame.ranks.values()} == {"dead"}
    assert len(frame.ranks) == 4


def test_ranks_without_a_nonce_belong_to_the_one_similar_job(tmp_path: Path) -> None:
    scene, recorder = hung(hosts=2)
    end_all(scene, recorder)
    first, second = recorder.boxes()
    second = structs.replace(second, job=structs.replace(JOB, world_size=4, nonce=""))
    frame = open_paths(write_boxes(tmp_path, [first, second]))
    assert len(frame.ranks) == 4
    assert frame.other_jobs == ()


def test_a_damaged_history_is_refused(tmp_path: Path) -> None:
    scene, recorder = hung(with_snapshots=False)
    end_all(scene, recorder)
    (box,) = recorder.boxes()
    first, *others = box.histories
    assert first.history.columns is not None
    columns = structs.replace(first.history.columns, issuer=wire.HistoryColumn(0, 1 << 30, b""))
    history = structs.replace(first.history, columns=columns)
    box = structs.replace(box, histories=(structs.replace(first, history=history), *others))
    with pytest.raises(Unreadable, match="a column with values of 1073741824 bytes"):
        open_paths(write_boxes(tmp_path, [box]))
