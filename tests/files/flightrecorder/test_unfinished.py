"""Unfinished ops in dumps are never healthy, and name no culprit by themselves."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from diagnosis.scenes import Scene
from diagnosis.scenes import frame as scene_frame
from files.boxes import BoxRecorder, write_boxes
from files.flightrecorder.writer import MS, WALL, FakeRecorder, make_recorders, write_dumps
from files.frames import blamed
from files.test_loader import C10D, READS, SPINS, stack, write_capture
from frtop_tui.connect.recorded import RecordedSource
from frtop_tui.diagnosis.model import Frame
from frtop_tui.files import capture
from frtop_tui.files.loader import open_paths
from frtop_tui.text.exit_status import exit_status
from frtop_tui.text.json_document import document
from frtop_tui.text.plain import text


def report(frame: Frame) -> str:
    return "\n".join(text(frame))


def is_undecided(frame: Frame) -> bool:
    kinds = {verdict.kind for verdict in frame.verdicts}
    return (frame.health, kinds, exit_status(frame)) == ("undecided", {"undecided"}, 4)


def all_issued(backend: str = "nccl", ran: int = 5) -> list[FakeRecorder]:
    ranks = make_recorders(4, backend=backend)
    for one in ranks:
        one.ran("0", count=ran)
        one.waits("0")
    return ranks


def only_one_waits(number: int, backend: str = "nccl") -> list[FakeRecorder]:
    """One of four ranks has an op unfinished that the others have completed."""
    ranks = make_recorders(4, backend=backend)
    for one in ranks:
        one.ran("0", count=5)
        (one.waits if one.rank == number else one.ran)("0")
    return ranks


def with_stacks(folder: Path) -> None:
    """C++ APIs show no Python frame of the op: all stacks are elsewhere."""
    write_dumps(folder, all_issued(backend="gloo"))
    for rank in range(4):
        stack(folder, rank, *SPINS, active=True)


def with_the_stack_of_one(folder: Path) -> None:
    write_dumps(folder, only_one_waits(2))
    stack(folder, 2, *READS)


def older_than_the_rest(folder: Path) -> None:
    """Ranks 0-2 moved after their dumps, as the dump of rank 3 proves."""
    ranks = make_recorders(4)
    for one in ranks:
        one.group("1", range(4), "other")
        one.ran("0", count=30 if one.rank == 3 else 10)
        if one.rank != 3:
            one.waits("1")
    write_dumps(folder, ranks)


def beside_a_capture(folder: Path) -> None:
    """No captured rank waits; two ranks come from dumps, and their stacks are elsewhere."""
    scene = Scene(4, hosts=2, backend="gloo")
    scene.deafen(1)
    scene.pass_time(60)
    write_capture(folder, replace(scene.settle(), wall_ns=WALL + 120_000 * MS))
    _fill(folder)


def beside_black_boxes(folder: Path) -> None:
    boxes = BoxRecorder(Scene(4, hosts=2, backend="gloo")).boxes(0)
    write_boxes(folder, boxes)
    _fill(folder, boxes[0].wall_ns - WALL - 120_000 * MS)


def _fill(folder: Path, later_ns: int = 0) -> None:
    ranks = all_issued(backend="gloo", ran=7)
    for one in ranks:
        for entry in one.entries:
            entry["time_created_ns"] += later_ns
            entry["time_discovered_completed_ns"] = None
    write_dumps(folder, ranks[2:])
    for rank in (2, 3):
        stack(folder, rank, *SPINS, active=True, late_s=60 + later_ns / 1e9)


def completion_on_devices(folder: Path) -> None:
    """The capture does not know it, and no stack of its ranks waits."""
    scene = Scene(4, backend="nccl")
    scene.does(range(4), "all_reduce", tracked=False, ago=60)
    for rank in range(4):
        scene.at(rank, scene_frame("train.py:33", "spin"), active=True)
    write_capture(folder, replace(scene.settle(), wall_ns=WALL + 120_000 * MS))
    write_dumps(folder, all_issued(ran=7))


@pytest.mark.parametrize(("lay", "ranks", "number"), [
    (with_stacks, "ranks 0-3", 6),
    (with_the_stack_of_one, "rank 2", 6),
    (older_than_the_rest, "ranks 0-2", 1),
    (beside_a_capture, "ranks 2-3", 8),
    (beside_black_boxes, "ranks 2-3", 8),
    (completion_on_devices, "ranks 0-3", 8),
])  # fmt: skip
def test_unfinished_ops_are_never_healthy(
    lay: Callable[[Path], None], ranks: str, number: int, tmp_path: Path
) -> None:
    lay(tmp_path)
    frame = open_paths([tmp_path])
    assert is_undecided(frame), report(frame)
    (verdict,) = frame.verdicts
    assert any(line.startswith(f"{ranks}: all_reduce #{number} of ") for line in verdict.evidence)
    assert "py-spy" in verdict.next or "dump again" in verdict.next


@pytest.mark.parametrize("backend", ["nccl", "gloo", ""])
@pytest.mark.parametrize("configured", [True, False])
def test_empty_dumps_of_most_members_are_undecided(
    tmp_path: Path, backend: str, *, configured: bool
) -> None:
    ranks = make_recorders(6)
    for one in ranks:
        if one.rank < 2:
            one.ran("0", count=5)
            one.waits("0")
        for entry in one.entries:
            entry["profiling_name"] = f"{backend}:all_reduce" if backend else "all_reduce"
        if not configured:
            one.groups = {}
    frame = open_paths([write_dumps(tmp_path, ranks)])
    assert is_undecided(frame), report(frame)


def test_a_few_of_many_unfinished_ops_are_listed(tmp_path: Path) -> None:
    ranks = all_issued("gloo")
    for one in ranks:
        one.group("1", range(4), "other")
        for _ in range(200):
            one.waits("0", "all_gather")
        one.waits("1", "barrier")
    write_dumps(tmp_path, ranks)
    for rank in range(4):
        stack(tmp_path, rank, *SPINS, active=True)
    frame = open_paths([tmp_path])
    assert is_undecided(frame)
    evidence = frame.verdicts[0].evidence
    assert len(evidence) < 12
    assert evidence[:2] == (
        "ranks 0-3: all_reduce #6 of default_pg",
        "ranks 0-3: barrier #1 of other",
    )
    listed = sum(line.startswith("ranks 0-3: ") for line in evidence)
    assert evidence[-2] == f"and {202 - listed} more unfinished ops"
    assert evidence[-1] == "by stacks: ranks 0-3: each runs at train.py:33 (spin)"


def test_unfinished_sends_and_receives_are_listed_with_their_peers(tmp_path: Path) -> None:
    ranks = make_recorders(2)
    for one in ranks:
        one.ran("0", count=5)
    ranks[0].p2p("0", "recv", 1)
    write_dumps(tmp_path, ranks)
    stack(tmp_path, 0, *READS)
    frame = open_paths([tmp_path])
    assert is_undecided(frame)
    assert frame.verdicts[0].evidence == (
        "rank 0: recv from rank 1 of default_pg",
        "by stacks: rank 0 is in a file operation: at train.py:90 (main)",
    )


@pytest.mark.parametrize(("age_s", "healthy"), [(0.2, True), (2.9, True), (3.1, False)])
def test_ops_issued_just_before_the_dump_leave_the_job_healthy(
    age_s: float, tmp_path: Path, *, healthy: bool
) -> None:
    ranks = all_issued()
    write_dumps(tmp_path, ranks)
    for one in ranks:
        at = one.clock_ns + int(age_s * 1000) * MS
        os.utime(tmp_path / f"nccl_trace_rank_{one.rank}", ns=(at, at))
    frame = open_paths([tmp_path])
    assert (frame.health, exit_status(frame)) == (("healthy", 0) if healthy else ("undecided", 4))


def test_a_verdict_with_a_culprit_needs_no_undecided_one(tmp_path: Path) -> None:
    """The other ranks wait in their unfinished ops: that needs no verdict of its own."""
    ranks = make_recorders(4)
    for one in ranks:
        one.ran("0", count=5)
        if one.rank != 1:
            one.waits("0")
    write_dumps(tmp_path, ranks)
    stack(tmp_path, 3, *READS)
    assert [verdict.culprits for verdict in open_paths([tmp_path]).verdicts] == [(1,)]


@pytest.mark.parametrize(
    "lay", [with_stacks, older_than_the_rest, beside_a_capture, beside_black_boxes]
)
def test_the_trace_has_the_finding_of_the_verdict(
    lay: Callable[[Path], None], tmp_path: Path
) -> None:
    lay(tmp_path)
    frame = open_paths([tmp_path], explain=True)
    assert frame.trace is not None
    assert [finding.kind for finding in frame.trace.findings] == ["undecided"]
    assert open_paths([tmp_path]).trace is None


def test_undecided_dumps_stay_undecided_in_a_capture(tmp_path: Path) -> None:
    (tmp_path / "dumps").mkdir()
    with_stacks(tmp_path / "dumps")
    RecordedSource(open_paths([tmp_path / "dumps"])).capture(tmp_path / "again.cap")
    assert is_undecided(open_paths([tmp_path / "again.cap"]))


def test_a_capture_of_a_healthy_job_with_async_ops_stays_healthy(tmp_path: Path) -> None:
    """Pending ops are normal while a job lives; only in dumps are they suspicious."""
    scene = Scene(2, backend="gloo")
    scene.waits([0, 1], "all_reduce", sync=False, for_s=20)
    for rank in range(2):
        scene.at(rank, scene_frame("train.py:33", "spin"), active=True)
    frame = scene.settle()
    assert any(view.pending for view in frame.ranks.values())
    capture.write(tmp_path / "x.cap", replace(frame, wall_ns=WALL), {}, ())
    assert open_paths([tmp_path / "x.cap"]).health == frame.health == "healthy"


# finished ops


@pytest.mark.parametrize(("backend", "fields", "finished"), [
    ("gloo", {"state": "scheduled", "retired": True}, True),  # gloo never writes another state
    ("nccl", {"state": "completed", "retired": True}, True),
    ("nccl", {"state": "completed", "retired": False}, True),  # not retired yet
    ("nccl", {"state": "started", "retired": True}, False),  # retired at its timeout
    ("nccl", {"state": "started", "retired": False}, False),
    ("gloo", {"state": "scheduled", "retired": False}, False),
])  # fmt: skip
def test_state_and_retired_tell_whether_an_op_is_finished(
    backend: str, fields: dict[str, Any], tmp_path: Path, *, finished: bool
) -> None:
    ranks = make_recorders(3, backend=backend)
    for one in ranks:
        one.ran("0", count=5)
        one.ran("0", **fields)
        if backend == "gloo":
            for entry in one.entries:
                entry.update(state="scheduled", time_discovered_completed_ns=None)
        elif fields["state"] == "started":
            one.entries[-1]["time_discovered_completed_ns"] = None
    frame = open_paths([write_dumps(tmp_path, ranks)])
    assert blamed(frame) == set()
    assert not frame.verdicts if finished else is_undecided(frame)


@pytest.mark.parametrize(("backend", "named"), [
    ("nccl", {1}),
    ("ncclx", {1}),
    ("gloo", set()),
    ("mpi", set()),
    ("", set()),
])  # fmt: skip
def test_only_accelerator_backends_can_lag(backend: str, named: set[int], tmp_path: Path) -> None:
    """gloo retires an op some µs after its caller continued; a dump may be taken in between."""
    ranks = only_one_waits(1, backend)
    if not backend:
        for one in ranks:
            for entry in one.entries:
                entry["profiling_name"] = "all_reduce"
    frame = open_paths([write_dumps(tmp_path, ranks)])
    assert blamed(frame) == named
    if not named:
        assert is_undecided(frame), report(frame)
        assert "device" not in report(frame)


# source lines


@pytest.mark.parametrize(("line", "shown", "same"), [(12, "train.py:12", True), (0, "", False)])
def test_a_line_number_of_0_is_unknown(
    tmp_path: Path, line: int, shown: str, *, same: bool
) -> None:
    """Some writers write 0 for unknown: two such lines need not be the same."""
    ranks = make_recorders(3)
    for one in ranks:
        one.ran("0", count=5)
        frames = [{"name": "step", "filename": "/home/me/train.py", "line": line}]
        one.waits("0", frames=frames, input_sizes=[[7 if one.rank == 1 else 1024]])
    frame = open_paths([write_dumps(tmp_path, ranks)])
    (verdict,) = frame.verdicts
    assert (verdict.kind, verdict.culprits) == ("mismatch", (1,))
    assert ("see what sets" in verdict.next) == same
    assert f"at {shown or 'train.py'}" in report(frame)
    assert "train.py:0" not in report(frame)


# Stacks beside dumps


COMPILES = (
    ("compile", "/v/lib/python3.11/site-packages/torch/_inductor/graph.py", 7),
    ("step", "/home/me/train.py", 30),
)
GATHERS = (("all_gather_into_tensor", C10D, 9), ("step", "/home/me/train.py", 40))


def completed(world: int = 2, backend: str = "nccl") -> list[FakeRecorder]:
    ranks = make_recorders(world, backend=backend)
    for one in ranks:
        one.ran("0", count=5)
    return ranks


def test_where_all_ops_are_completed_stacks_alone_tell_who_waits(tmp_path: Path) -> None:
    write_dumps(tmp_path, completed())
    stack(tmp_path, 0, *GATHERS)
    stack(tmp_path, 1, *COMPILES)
    frame = open_paths([tmp_path])
    (verdict,) = frame.verdicts
    assert (verdict.kind, verdict.culprits, verdict.why.cause) == (
        "not_entered", (1,), "compiling",
    )  # fmt: skip
    ranks = document(frame)["ranks"]
    assert [(ranks[n]["state"], ranks[n]["since_s"]) for n in "01"] == [
        ("blocked", None), ("late", None),
    ]  # fmt: skip
    assert verdict.op is not None
    assert verdict.op.kind == "all_gather_into_tensor"
    assert exit_status(frame) == 5
    RecordedSource(frame).capture(tmp_path / "again.cap")
    (again,) = open_paths([tmp_path / "again.cap"]).verdicts
    assert again.culprits == (1,)


@pytest.mark.parametrize("where", [COMPILES, SPINS])
def test_who_is_not_seen_is_not_called_well(
    where: tuple[tuple[str, str, int], ...], tmp_path: Path
) -> None:
    ranks = completed()
    write_dumps(tmp_path, ranks)
    for one in ranks:
        at = one.clock_ns + 1000 * MS
        os.utime(tmp_path / f"nccl_trace_rank_{one.rank}", ns=(at, at))
    stack(tmp_path, 1, *where)
    frame = open_paths([tmp_path])
    assert (frame.verdicts, frame.health, exit_status(frame)) == ((), "undecided", 4)
    assert {view.state for view in frame.ranks.values()} == {"unknown"}
    assert frame.notes[0].startswith("rank 1 ")
    assert "there are no stacks of rank 0" in frame.notes[0]


def test_who_waits_alone_by_its_stack_may_wait_for_one_that_is_not_seen(tmp_path: Path) -> None:
    write_dumps(tmp_path, completed())
    stack(tmp_path, 0, *GATHERS)
    frame = open_paths([tmp_path])
    assert is_undecided(frame)
    assert "rank 1 may be missing" in frame.verdicts[0].why.text


def test_who_is_inside_a_call_by_its_stack_is_not_blamed_for_an_older_dump(tmp_path: Path) -> None:
    ranks = completed(4)
    for one in ranks:
        if one.rank != 2:
            one.waits("0")
    write_dumps(tmp_path, ranks)
    assert blamed(open_paths([tmp_path])) == {2}
    stack(tmp_path, 2, *GATHERS)
    frame = open_paths([tmp_path])
    assert is_undecided(frame)
    assert "rank 2 has not issued all_reduce #6 of default_pg" in frame.verdicts[0].evidence


@pytest.mark.parametrize(("backend", "named"), [("gloo", {2}), ("nccl", set())])
def test_a_rank_without_a_dump_that_runs_may_be_behind_a_full_queue(
    backend: str, named: set[int], tmp_path: Path
) -> None:
    ranks = completed(4, backend)
    for one in ranks:
        one.waits("0")
    write_dumps(tmp_path, [one for one in ranks if one.rank != 2])
    stack(tmp_path, 2, *SPINS, active=True)
    assert blamed(open_paths([tmp_path])) == named


def test_ranks_that_have_not_issued_an_op_are_listed_beside_stacks_too(tmp_path: Path) -> None:
    ranks = completed(4, "gloo")
    for one in ranks:
        if one.rank != 2:
            one.waits("0")
    write_dumps(tmp_path, ranks)
    for rank in range(4):
        stack(tmp_path, rank, *SPINS, active=True)
    frame = open_paths([tmp_path])
    assert is_undecided(frame)
    assert frame.verdicts[0].evidence[0] == "rank 2 has not issued all_reduce #6 of default_pg"
