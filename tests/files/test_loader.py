"""Dumps, stacks, captures and black boxes in one folder are loaded as one frame."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from diagnosis.scenes import Scene, only
from diagnosis.scenes import frame as scene_frame
from files.boxes import BoxRecorder, write_boxes
from files.flightrecorder import writer
from files.flightrecorder.writer import MS, WALL, FakeRecorder, make_recorders, write_dumps
from files.frames import blamed, notes
from frtop_probe.ring.rank_ranges import fold
from frtop_tui.connect.recorded import RecordedSource
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import Unreadable, UsageError
from frtop_tui.files import capture
from frtop_tui.files.flightrecorder.file_names import RankPattern
from frtop_tui.files.loader import open_paths
from frtop_tui.screens.availability import why_unavailable
from frtop_tui.text.exit_status import exit_status

C10D = "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"


one_missing = partial(writer.one_missing, backend="gloo")


def stack(
    folder: Path,
    rank: int,
    *frames: tuple[str, str, int],
    active: bool = False,
    owns_gil: bool = False,
    name: str = "rank_{}.pyspy.json",
    late_s: float = 60.0,
) -> None:
    """Writes a stack dump as py-spy does, dated some time after the last op."""
    thread = {
        "pid": 4000 + rank,
        "thread_id": 140371916749696 + 4096 * rank,
        "thread_name": "MainThread",
        "os_thread_id": 4000 + rank,
        "active": active,
        "owns_gil": owns_gil,
        "frames": [
            {"name": function, "filename": file, "short_filename": None, "module": None,
             "line": line, "locals": None}
            for function, file, line in (*frames, ("main", "/home/me/train.py", 90))
        ],
    }  # fmt: skip
    path = folder / name.format(rank)
    path.write_text(json.dumps([thread]))
    at = WALL + int((60 + late_s) * 1000 * MS)
    os.utime(path, ns=(at, at))


WAITS = (("all_reduce", C10D, 2800), ("wrapper", "/v/lib/python3.11/site-packages/torch/x.py", 3))
READS = (("read_text", "/usr/lib/python3.11/pathlib.py", 1059),)
SPINS = (("spin", "/home/me/train.py", 33),)


def test_dumps_name_the_culprit_and_stacks_the_cause(tmp_path: Path) -> None:
    write_dumps(tmp_path, one_missing())
    for rank in range(4):
        stack(tmp_path, rank, *(READS if rank == 2 else WAITS))
    frame = open_paths([tmp_path])
    verdict = only(frame)
    assert (verdict.kind, verdict.culprits, fold(verdict.victims)) == ("not_entered", (2,), "0-1,3")
    assert verdict.op is not None
    assert verdict.op.number == 21
    assert verdict.why.cause == "file_io"
    assert frame.ranks[0].threads
    assert (verdict.confidence, exit_status(frame)) == ("suspect", 5)


def test_a_rank_whose_stack_is_elsewhere_is_not_blocked(tmp_path: Path) -> None:
    """Without the stacks, the receive that was posted early would make a cycle of two."""
    ranks = make_recorders(2)
    for one in ranks:
        one.ran("0", count=5)
    ranks[0].p2p("0", "recv", 1)
    ranks[1].waits("0", "barrier")
    write_dumps(tmp_path, ranks)
    assert open_paths([tmp_path]).verdicts[0].kind == "deadlock"
    stack(tmp_path, 0, *READS)
    stack(tmp_path, 1, *WAITS)
    verdict = only(open_paths([tmp_path]))
    assert (verdict.kind, verdict.culprits) == ("not_entered", (0,))


def test_a_rank_without_a_dump_is_named_by_its_stack(tmp_path: Path) -> None:
    ranks = one_missing()
    write_dumps(tmp_path, [one for one in ranks if one.rank != 2])
    for rank in range(4):
        if rank == 2:
            stack(tmp_path, rank, *SPINS, active=True, owns_gil=True)
        else:
            stack(tmp_path, rank, *WAITS)
    frame = open_paths([tmp_path])
    verdict = only(frame)
    assert (verdict.kind, verdict.culprits) == ("not_entered", (2,))
    assert "train.py:33" in verdict.why.text
    assert "rank 2: no dump, known only from stacks" in notes(frame)
    assert frame.coverage.unreachable == ()


def test_a_rank_that_waits_by_its_stack_is_not_blamed_for_a_missing_dump(tmp_path: Path) -> None:
    ranks = one_missing()
    write_dumps(tmp_path, [one for one in ranks if one.rank != 2])
    for rank in range(4):
        stack(tmp_path, rank, *WAITS)
    frame = open_paths([tmp_path])
    assert blamed(frame) == set()
    assert "in which op is unknown" in notes(frame)


def test_a_stack_that_is_older_than_the_ops_is_left_out(tmp_path: Path) -> None:
    write_dumps(tmp_path, one_missing())
    stack(tmp_path, 2, *READS, late_s=-120)
    frame = open_paths([tmp_path])
    assert only(frame).why.cause == "unknown"
    assert "stacks of rank 2 are older than their last ops" in notes(frame)


def test_damaged_stacks_are_named_and_the_others_are_used(tmp_path: Path) -> None:
    write_dumps(tmp_path, one_missing())
    (tmp_path / "rank_1.pyspy.json").write_text('[{"thread_id": 1, ')
    (tmp_path / "rank_3.pyspy.json").write_text("")
    (tmp_path / "worker.pyspy.json").write_text("[]")
    stack(tmp_path, 2, *READS)
    frame = open_paths([tmp_path])
    assert only(frame).why.cause == "file_io"
    assert all(f"{name}.pyspy.json" in notes(frame) for name in ("rank_1", "rank_3", "worker"))


def test_a_hundred_damaged_files_are_named_in_part(tmp_path: Path) -> None:
    write_dumps(tmp_path, one_missing())
    for rank in range(4, 104):
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(b"\x80\x02garbage")
    stack(tmp_path, 2, *READS)
    frame = open_paths([tmp_path])
    assert blamed(frame) == {2}
    assert notes(frame).count("is damaged") == 20
    assert "80 more like these" in notes(frame)


def test_stacks_are_used_where_no_dump_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "nccl_trace_rank_0").write_bytes(b"\x80\x02garbage")
    for rank in range(3):
        stack(tmp_path, rank, *(READS if rank == 2 else WAITS))
    frame = open_paths([tmp_path])
    assert blamed(frame) == {2}
    assert "nccl_trace_rank_0" in notes(frame)


# captures and black boxes


def half_reported(*, tracked: bool = True) -> Frame:
    """Ranks 0 and 1 wait in #8; the host of ranks 2 and 3 is unreachable."""
    scene = Scene(4, hosts=2, backend="gloo" if tracked else "nccl")
    scene.waits([0, 1], "all_reduce", for_s=60, tracked=tracked)
    scene.settle()
    scene.deafen(1)
    scene.pass_time(60)
    return replace(scene.settle(), wall_ns=WALL + 120_000 * MS)


def dumps_of(
    ranks: Iterable[int], *, missing: Sequence[int] = (3,), ran: int = 7
) -> list[FakeRecorder]:
    made = make_recorders(4, backend="gloo")
    for one in made:
        one.ran("0", count=ran)
        if one.rank not in missing:
            one.waits("0")
    return [one for one in made if one.rank in ranks]


def write_capture(folder: Path, frame: Frame) -> None:
    capture.write(folder / "x.cap", frame, {}, ())


def test_logs_are_judged_beside_files_that_only_look_like_dumps(tmp_path: Path) -> None:
    """torchrun leaves an `error.json` beside the output of a rank that failed."""
    log, error = tmp_path / "job.out", tmp_path / "error.json"
    log.write_text("[rank1]: Traceback (most recent call last):\n"
                   '[rank1]:   File "/home/me/train.py", line 8, in main\n'
                   "[rank1]: ValueError: bad sample\n")  # fmt: skip
    error.write_text('{"message": {"message": "ValueError: bad sample", "extraInfo": {}}}')
    frame = open_paths([log, error])
    assert [(one.kind, one.culprits) for one in frame.verdicts] == [("dead", (1,))]
    assert "error.json is not a Flight Recorder dump" in notes(frame)


def test_a_capture_takes_unreachable_ranks_from_their_dumps(tmp_path: Path) -> None:
    write_capture(tmp_path, half_reported())
    assert blamed(open_paths([tmp_path])) == set()
    write_dumps(tmp_path, dumps_of([2, 3]))
    frame = open_paths([tmp_path])
    verdict = only(frame)
    assert (verdict.kind, verdict.culprits, verdict.confidence) == ("not_entered", (3,), "suspect")
    assert fold(verdict.victims) == "0-2"
    assert frame.coverage.unreachable == ()
    assert frame.recorded is not None
    assert frame.recorded.kind == "capture"
    assert "ranks 2-3 from Flight Recorder dumps" in notes(frame)


def test_ranks_taken_from_dumps_are_saved_in_a_new_capture(tmp_path: Path) -> None:
    write_capture(tmp_path, half_reported())
    write_dumps(tmp_path, dumps_of([2, 3]))
    source = RecordedSource(open_paths([tmp_path]))
    assert not why_unavailable("capture", source.frame())
    source.capture(tmp_path / "all.cap")
    found = open_paths([tmp_path / "all.cap"])
    assert found.verdicts == source.frame().verdicts
    assert sorted(found.ranks) == [0, 1, 2, 3]
    assert "ranks 2-3 from Flight Recorder dumps" in notes(found)
    assert "already" in why_unavailable("capture", found)


def test_a_capture_takes_an_unreachable_rank_from_its_stack(tmp_path: Path) -> None:
    write_capture(tmp_path, half_reported())
    stack(tmp_path, 2, *WAITS)
    stack(tmp_path, 3, *READS)
    frame = open_paths([tmp_path])
    assert blamed(frame) == {3}
    assert only(frame).why.cause == "file_io"


def test_a_healthy_half_and_completed_dumps_of_the_other_are_undecided(tmp_path: Path) -> None:
    scene = Scene(4, hosts=2, backend="gloo")
    scene.does(range(4), "all_reduce")
    scene.deafen(1)
    frame = replace(scene.settle(), wall_ns=WALL + 120_000 * MS)
    assert frame.health == "healthy"
    write_capture(tmp_path, frame)
    ranks = make_recorders(4, backend="gloo")
    for one in ranks:
        one.ran("0", count=8)
    write_dumps(tmp_path, ranks[2:])
    found = open_paths([tmp_path])
    assert found.coverage.unreachable == ()
    assert (found.verdicts, found.health, exit_status(found)) == ((), "undecided", 4)


def test_a_capture_that_names_a_culprit_keeps_its_verdict(tmp_path: Path) -> None:
    scene = Scene(4)
    scene.waits([0, 1, 3], "all_reduce", for_s=60)
    scene.sleeps(2)
    frame = replace(scene.settle(), wall_ns=WALL + 120_000 * MS)
    write_capture(tmp_path, frame)
    write_dumps(tmp_path, dumps_of(range(4), missing=(2,)))
    assert open_paths([tmp_path]).verdicts == frame.verdicts


@pytest.mark.parametrize("how", ["another moment", "another job", "more ranks"])
def test_dumps_that_do_not_fit_the_capture_are_named_and_left_out(tmp_path: Path, how: str) -> None:
    write_capture(tmp_path, half_reported())
    if how == "another moment":
        write_dumps(tmp_path, dumps_of(range(4), ran=5))
    elif how == "more ranks":
        write_dumps(tmp_path, one_missing(size=6))
    else:
        made = [FakeRecorder(rank) for rank in range(4)]
        for one in made:
            one.group("7", [0, 1, 2, 3], "other")
            one.ran("7", count=8 if one.rank != 3 else 7)
        write_dumps(tmp_path, made)
    frame = open_paths([tmp_path])
    assert blamed(frame) == set()
    assert "left out, open them by themselves" in notes(frame)


def test_a_dump_older_than_ops_completed_in_the_capture_is_left_out(tmp_path: Path) -> None:
    write_capture(tmp_path, half_reported())
    write_dumps(tmp_path, dumps_of([3], ran=4))
    frame = open_paths([tmp_path])
    assert blamed(frame) == set()
    assert "older than what others have completed" in notes(frame)


def test_a_capture_takes_completion_on_devices_from_dumps(tmp_path: Path) -> None:
    """All ranks issued #8 and #9 and wait for their devices, whose progress is unknown."""
    scene = Scene(4, backend="nccl")
    scene.does(range(4), "all_reduce", tracked=False, ago=60)
    scene.does(range(4), "all_gather", tracked=False, ago=59)
    for rank in range(4):
        scene.at(rank, scene_frame("/v/lib/torch/cuda/__init__.py:1040", "synchronize"))
    frame = replace(scene.settle(), wall_ns=WALL + 120_000 * MS)
    assert {verdict.kind for verdict in frame.verdicts} <= {"undecided"}
    write_capture(tmp_path, frame)
    made = make_recorders(4, backend="nccl")
    for one in made:
        one.ran("0", count=7)
        one.waits("0")
        one.waits("0", "all_gather")
    write_dumps(tmp_path, made)
    opened = open_paths([tmp_path])
    assert "what the devices of ranks 0-3 have completed: from dumps" in notes(opened)
    verdict = only(opened)
    assert verdict.kind == "stuck"
    assert verdict.op is not None
    assert verdict.op.number == 8


def test_black_boxes_take_a_host_without_a_box_from_its_dumps(tmp_path: Path) -> None:
    scene = Scene(4, hosts=2)
    scene.waits([0, 1], "all_reduce", for_s=60)
    boxes = BoxRecorder(scene).boxes(0)
    write_boxes(tmp_path, boxes)
    assert blamed(open_paths([tmp_path])) == set()
    made = dumps_of([2, 3])
    for one in made:
        for entry in one.entries:
            entry["time_created_ns"] += boxes[0].wall_ns - WALL - 120_000 * MS
            entry["time_discovered_completed_ns"] = None
    write_dumps(tmp_path, made)
    frame = open_paths([tmp_path])
    assert blamed(frame) == {3}
    assert "ranks 2-3 from Flight Recorder dumps" in notes(frame)


# names


def test_names_without_a_rank_suggest_a_pattern(tmp_path: Path) -> None:
    for one in one_missing():
        host, number = divmod(one.rank, 2)
        (tmp_path / f"trace_node{host}_{number}").write_bytes(one.pickle())
    with pytest.raises(Unreadable, match="is unknown: name each file") as caught:
        open_paths([tmp_path])
    assert "--ranks-from" in caught.value.next_step


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("r{}-of-4.bin", "r{rank}-of-*"),
        ("job7.worker{}.host-a", "job*.worker{rank}.*"),
        ("{}/trace", "{rank}/trace"),
        ("gpu{}/out.json", "gpu{rank}/*.json"),
    ],
)
def test_a_pattern_tells_the_ranks_of_files(tmp_path: Path, name: str, pattern: str) -> None:
    for one in one_missing():
        path = tmp_path / name.format(one.rank)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(one.json() if name.endswith("json") else one.pickle())
    (tmp_path / "nccl_trace_rank_9").write_bytes(b"of something else")
    frame = open_paths([tmp_path], pattern=RankPattern(pattern))
    assert blamed(frame) == {2}
    assert sorted(frame.ranks) == [0, 1, 2, 3]


def test_a_pattern_for_dumps_does_not_apply_to_stacks(tmp_path: Path) -> None:
    write_dumps(tmp_path, one_missing(), "host0_gpu")
    for rank in range(4):
        stack(tmp_path, rank, *(READS if rank == 2 else WAITS))
    frame = open_paths([tmp_path], pattern=RankPattern("host*_gpu{rank}"))
    assert only(frame).why.cause == "file_io"


@pytest.mark.parametrize("pattern", ["", "rank*", "{rank}{rank}", "/"])
def test_a_pattern_without_exactly_one_rank_is_a_usage_error(pattern: str) -> None:
    with pytest.raises(UsageError, match="where in the name"):
        RankPattern(pattern)
