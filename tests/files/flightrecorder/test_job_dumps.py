"""Verdicts from dumps alone: every culprit that can be proved, and nobody else."""

from __future__ import annotations

import json
import os
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from files.flightrecorder.writer import (
    MS,
    WALL,
    group_labelled,
    make_grid,
    make_recorders,
    one_missing,
    write_dumps,
)
from files.frames import blamed, notes
from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.cases.context import Context
from frtop_tui.diagnosis.cases.not_entered.detect import withhold
from frtop_tui.diagnosis.finding import Detail, Finding
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import Unreadable
from frtop_tui.files.loader import open_paths
from frtop_tui.text.exit_status import exit_status
from frtop_tui.text.json_document import document
from frtop_tui.text.plain import text


def opened(folder: Path) -> Frame:
    return open_paths([folder])


def test_a_rank_that_has_not_entered_the_op_is_named(tmp_path: Path) -> None:
    frame = opened(write_dumps(tmp_path, one_missing()))
    (verdict,) = frame.verdicts
    assert (verdict.kind, verdict.culprits, fold(verdict.victims)) == ("not_entered", (2,), "0-1,3")
    assert verdict.op is not None
    assert (verdict.op.kind, verdict.op.number) == ("all_reduce", 21)
    # One dump of each rank makes a suspicion only.
    assert (verdict.confidence, verdict.progress) == ("suspect", "unknown")
    assert exit_status(frame) == 5


def test_a_dump_without_ops_is_not_said_to_have_finished_them(tmp_path: Path) -> None:
    ranks = make_recorders(4)
    for one in ranks[:3]:
        one.waits("0")
    (verdict,) = opened(write_dumps(tmp_path, ranks)).verdicts
    assert verdict.culprits == (3,)
    assert verdict.why.text.startswith("its dump has no op; a dump does not show")


@pytest.mark.parametrize(("backend", "named"), [("nccl", {1, 3}), ("gloo", set())])
def test_several_absent_gloo_ranks_are_not_named(
    backend: str, named: set[int], tmp_path: Path
) -> None:
    """One may wait in a receive from the other, which gloo's recorder does not record."""
    ranks = make_recorders(4)
    for one in ranks:
        mine = "1" if one.rank < 2 else "2"
        one.group(mine, (0, 1) if one.rank < 2 else (2, 3), "tensor")
        one.ran(mine, count=5)
        if one.rank in (0, 2):
            one.waits(mine)
        for entry in one.entries:
            entry["profiling_name"] = f"{backend}:all_reduce"
    frame = opened(write_dumps(tmp_path, ranks))
    assert blamed(frame) == named
    if not named:
        (verdict,) = frame.verdicts
        assert (verdict.kind, fold(verdict.victims), exit_status(frame)) == ("undecided", "0,2", 4)
        assert "ranks 1,3" in verdict.headline


@pytest.mark.parametrize("backend", ["nccl", "gloo"])
@pytest.mark.parametrize(("waiting", "named"), [
    ((0, 1), {2, 3}),
    ((3,), set()),
    ((0, 1, 3), {2}),
])  # fmt: skip
def test_a_majority_is_not_blamed_without_a_known_cause(
    backend: str, waiting: tuple[int, ...], named: set[int], tmp_path: Path
) -> None:
    ranks = make_recorders(4)
    for one in ranks:
        one.ran("0", count=20)
        if one.rank in waiting:
            one.waits("0")
        for entry in one.entries:
            entry["profiling_name"] = f"{backend}:all_reduce"
    frame = opened(write_dumps(tmp_path, ranks))
    (verdict,) = frame.verdicts
    assert blamed(frame) == named
    if not named:
        assert (verdict.kind, verdict.parties, exit_status(frame)) == (
            "undecided", ((0, 1, 2), (3,)), 4
        )  # fmt: skip
        assert "rank 3 may just as well be ahead" in verdict.why.text


def test_gloo_dumps_without_completion_and_members_name_the_culprit(tmp_path: Path) -> None:
    ranks = one_missing()
    for one in ranks:
        one.groups = {"": {"name": "", "desc": "", "ranks": "[0, 1]"}}
        for entry in one.entries:
            entry.update(
                profiling_name="gloo:all_reduce",
                state="scheduled",
                time_discovered_completed_ns=None,
            )
    frame = opened(write_dumps(tmp_path, ranks))
    assert blamed(frame) == {2}
    assert frame.coverage.expected == 4


def test_exactly_the_two_culprits_in_nested_groups_are_named(tmp_path: Path) -> None:
    """Ranks 9 and 14 stopped; others wait for them in tensor groups and the pipeline."""
    ranks = make_grid()
    for one in ranks:
        tensor, expert = group_labelled(one, "TENSOR"), group_labelled(one, "EXPERT")
        pipeline = group_labelled(one, "PIPELINE")
        one.ran("0", count=3)
        one.ran(tensor, count=40)
        one.ran(expert, "all_to_all", count=10)
        if one.rank in (9, 14):
            continue
        if one.rank >= 8:
            one.waits(expert, "all_to_all")
            one.waits(tensor)
        else:
            one.p2p(pipeline, "send", one.rank + 8)
            one.p2p("0", "recv", one.rank + 8)
            one.waits(tensor, "broadcast")
            one.waits(tensor)
    for active in (False, True):
        folder = tmp_path / str(active)
        folder.mkdir()
        frame = opened(write_dumps(folder, ranks, "_dump_", active=active))
        assert blamed(frame) == {9, 14}, active
        assert frame.verdicts[0].culprits == (9, 14)


def test_a_rank_that_completed_the_op_is_not_blamed_in_active_dumps(tmp_path: Path) -> None:
    """The root has completed the broadcast; its dump has no entry, only the status."""
    ranks = make_recorders(4)
    for one in ranks:
        one.ran("0", count=5)
        if one.rank == 0:
            one.ran("0", "broadcast")
        elif one.rank != 3:
            one.waits("0", "broadcast")
    assert blamed(opened(write_dumps(tmp_path, ranks, active=True))) == {3}


def test_a_rank_without_a_dump_is_not_blamed(tmp_path: Path) -> None:
    ranks = one_missing()
    frame = opened(write_dumps(tmp_path, [one for one in ranks if one.rank != 2]))
    assert blamed(frame) == set()
    assert frame.verdicts[0].kind == "undecided"
    assert frame.coverage.unreachable == (2,)
    assert "no dump of rank 2" in "\n".join(text(frame))
    assert exit_status(frame) == 4


def test_a_culprit_is_named_although_another_rank_has_no_dump(tmp_path: Path) -> None:
    ranks = one_missing(size=5)
    frame = opened(write_dumps(tmp_path, [one for one in ranks if one.rank != 4]))
    (verdict,) = frame.verdicts
    assert verdict.culprits == (2,)
    assert any("rank 4" in line for line in verdict.missing)


def test_different_ops_with_one_number_are_a_mismatch(tmp_path: Path) -> None:
    ranks = make_recorders(4)
    for one in ranks:
        one.ran("0", count=7)
        one.waits("0", "all_gather" if one.rank == 1 else "all_reduce")
    frame = opened(write_dumps(tmp_path, ranks))
    assert frame.verdicts[0].kind == "mismatch"
    assert frame.verdicts[0].culprits == (1,)
    assert frame.verdicts[0].confidence == "suspect"
    assert exit_status(frame) == 3


def test_legal_differences_are_no_mismatch(tmp_path: Path) -> None:
    ranks = make_recorders(3)
    for one in ranks:
        one.ran("0", "all_to_all", input_sizes=[[one.rank, 8]], output_sizes=[[5 - one.rank, 8]])
        one.ran("0", "gather", output_sizes=[[1024]] * 3 if one.rank == 0 else [])
        one.ran("0", "coalesced", input_sizes=[[]], output_sizes=[[]])
    assert opened(write_dumps(tmp_path, ranks)).verdicts == ()


def test_parts_of_a_coalesced_op_share_a_number_and_are_not_compared(tmp_path: Path) -> None:
    ranks = make_recorders(2)
    for one in ranks:
        one.ran("0", count=3)
        for size in (64, 32) if one.rank else (32, 64):
            one.ran("0", "ALLREDUCE_coalesced", input_sizes=[[size]], collective_seq_id=4)
    assert opened(write_dumps(tmp_path, ranks)).verdicts == ()


def test_group_ranks_of_sends_become_global_ranks(tmp_path: Path) -> None:
    ranks = make_recorders(6)
    for one in ranks:
        if one.rank in (3, 5):
            one.group("1", [3, 5], "pair")
    ranks[3].p2p("1", "recv", 5)
    frame = opened(write_dumps(tmp_path, ranks))
    (verdict,) = frame.verdicts
    assert verdict.culprits == (5,)
    assert "rank 5 has not sent; rank 3 waits in recv" in verdict.headline


def test_ranks_that_receive_from_each_other_are_a_deadlock(tmp_path: Path) -> None:
    ranks = make_recorders(2)
    ranks[0].p2p("0", "recv", 1)
    ranks[1].p2p("0", "recv", 0)
    frame = opened(write_dumps(tmp_path, ranks))
    assert [verdict.kind for verdict in frame.verdicts] == ["deadlock"]


def test_a_finding_without_victims_is_not_withheld(tmp_path: Path) -> None:
    """Contradictory dumps lead to such a finding."""
    frame = opened(write_dumps(tmp_path, one_missing()))
    context = cast("Context", SimpleNamespace(has_ages=False, ranks=frame.ranks))
    finding = Finding(kind="not_entered", detail=Detail(), key=(), culprits=(2,))
    assert withhold(context, [finding]) == [finding]


@pytest.mark.parametrize("aged", [True, False])
def test_a_device_that_lags_in_an_op_that_all_issued_is_named(
    tmp_path: Path, *, aged: bool
) -> None:
    ranks = make_recorders(4)
    for one in ranks:
        one.group("1", range(4), "other")
        one.ran("0", count=5)
        if one.rank == 2:
            one.waits("0")
        else:
            one.ran("0")
        one.waits("0")
        one.clock_ns += 500_000 * MS * aged
        one.ran("1", "barrier")
    frame = opened(write_dumps(tmp_path, ranks))
    (verdict,) = frame.verdicts
    assert (verdict.kind, verdict.culprits, verdict.confidence) == ("stuck", (2,), "suspect")
    assert "the device of rank 2 is behind: others have completed #6" in verdict.headline
    assert ("or its dump is the oldest" in verdict.headline) != aged
    assert fold(verdict.victims) == "0-1,3"
    assert exit_status(frame) == 5


def test_a_dump_that_is_provably_older_blames_nobody(tmp_path: Path) -> None:
    ranks = make_recorders(3)
    for one in ranks:
        one.ran("0", count=10 if one.rank == 1 else 30)
        if one.rank != 1:
            one.waits("0")
    frame = opened(write_dumps(tmp_path, ranks))
    assert blamed(frame) == set()
    assert frame.ranks[1].state == "unreachable"


def test_an_op_issued_just_before_the_dump_is_no_wait(tmp_path: Path) -> None:
    ranks = one_missing()
    write_dumps(tmp_path, ranks)
    for one in ranks:
        at = one.clock_ns + 200 * MS
        os.utime(tmp_path / f"nccl_trace_rank_{one.rank}", ns=(at, at))
    assert opened(tmp_path).verdicts == ()


def test_gloo_and_nccl_in_one_job_have_groups_of_their_own(tmp_path: Path) -> None:
    for backend in ("nccl", "gloo"):
        ranks = make_recorders(3, backend=backend)
        for one in ranks:
            one.ran("0", "barrier" if backend == "gloo" else "all_reduce", count=4)
            if backend == "gloo" and one.rank != 1:
                one.waits("0", "barrier")
        write_dumps(tmp_path, ranks, f"{backend}_trace_rank_")
    frame = opened(tmp_path)
    (verdict,) = frame.verdicts
    assert verdict.culprits == (1,)
    assert verdict.op is not None
    assert (verdict.op.kind, verdict.op.number) == ("barrier", 5)
    assert [len(view.groups) for view in frame.ranks.values()] == [2, 2, 2]


@pytest.mark.parametrize(("late_s", "missing", "health"), [
    ((1, 1, 1), False, "healthy"),
    ((1, 1, 60), False, "undecided"),
    ((60, 60, 60), False, "undecided"),
    ((1, 1, 1), True, "undecided"),
])  # fmt: skip
def test_that_all_ops_are_completed_is_healthy_only_just_after_the_last_of_each_rank(
    late_s: tuple[int, ...], health: str, tmp_path: Path, *, missing: bool
) -> None:
    ranks = make_recorders(4 if missing else 3)[:3]
    for one in ranks:
        one.ran("0", count=30)
    write_dumps(tmp_path, ranks)
    for one, late in zip(ranks, late_s, strict=True):
        at = one.clock_ns + late * 1000 * MS
        os.utime(tmp_path / f"nccl_trace_rank_{one.rank}", ns=(at, at))
    frame = opened(tmp_path)
    assert (frame.verdicts, frame.health) == ((), health)
    assert exit_status(frame) == (0 if health == "healthy" else 4)
    assert "they do not show what ranks did afterwards" in notes(frame)


@pytest.mark.parametrize("values", [{}, {"entries": None}, {"pg_status": {"0": {}}}])
def test_empty_dumps_are_undecided(tmp_path: Path, values: dict[str, object]) -> None:
    for rank in range(2):
        path = tmp_path / f"nccl_trace_rank_{rank}.json"
        path.write_text(json.dumps({"entries": [], **values}))
        os.utime(path, ns=(WALL, WALL + rank))
    frame = opened(tmp_path)
    assert (frame.health, frame.verdicts, exit_status(frame)) == ("undecided", (), 4)
    assert {(rank["state"], rank["since_s"]) for rank in document(frame)["ranks"].values()} == {
        ("unknown", None)
    }
    assert frame.recorded is not None
    assert frame.recorded.wall_ns == WALL + 1
    assert "have no op" in frame.recorded.notes[0]


def test_damaged_and_foreign_files_are_named_and_the_others_are_used(tmp_path: Path) -> None:
    folder = write_dumps(tmp_path, one_missing(size=6))
    data = (folder / "nccl_trace_rank_0").read_bytes()
    (folder / "nccl_trace_rank_0").write_bytes(data[: len(data) // 2])
    (folder / "nccl_trace_rank_1").write_bytes(b"")
    (folder / "nccl_trace_rank_7.json").write_text('{"learning_rate": 3}')
    (folder / "config.json").write_text("{}")
    (folder / "README").write_text("nothing")
    frame = opened(folder)
    assert blamed(frame) == {2}
    assert frame.recorded is not None
    assert all(f"rank_{number}" in notes(frame) for number in (0, 1, 7))
    assert "config" not in notes(frame)
    assert frame.coverage.unreachable == (0, 1)


def test_a_folder_without_readable_dumps_raises_with_a_next_step(tmp_path: Path) -> None:
    (tmp_path / "nccl_trace_rank_0").write_bytes(b"\x80\x02garbage")
    with pytest.raises(Unreadable, match="nccl_trace_rank_0") as caught:
        opened(tmp_path)
    assert "copy the file again" in caught.value.next_step


def test_a_file_with_another_name_is_used_if_the_user_names_it(tmp_path: Path) -> None:
    folder = write_dumps(tmp_path, one_missing(), "job-a.")
    frame = open_paths(sorted(folder.iterdir()))
    assert blamed(frame) == {2}


def test_groups_in_the_dump_tell_its_rank(tmp_path: Path) -> None:
    ranks = one_missing()
    for one in ranks:
        one.group(f"{one.rank + 1}", [one.rank], "self")
        host, number = divmod(one.rank, 2)
        (tmp_path / f"nccl_trace_rank_node{host}_{number}").write_bytes(one.pickle())
    frame = opened(tmp_path)
    assert blamed(frame) == {2}
    assert {rank: view.host for rank, view in frame.ranks.items()} == {
        0: "node0",
        1: "node0",
        2: "node1",
        3: "node1",
    }


@pytest.mark.parametrize(
    ("named", "says"), [("", "or copied then (cp -p keeps the time)"), ("_{}", "by their names")]
)
def test_dumps_are_dated_by_when_they_were_written(named: str, says: str, tmp_path: Path) -> None:
    """A watchdog dumps ten minutes after the last op."""
    folder, last = write_dumps(tmp_path, one_missing()), opened(tmp_path).now_ns
    at = (last // 10**9 + 600) * 10**9
    for path in sorted(folder.iterdir()):
        moved = path.rename(f"{path}{named.format(at // 10**9)}")
        os.utime(moved, ns=(0, at if not named else at + 86400 * 10**9))
    frame = opened(folder)
    assert frame.recorded is not None
    assert (frame.recorded.wall_ns, frame.now_ns) == (at, last)
    assert f"these files were written 9m59s after the last op in them, {says}" in notes(frame)
    when = datetime.fromtimestamp(at / 1e9, tz=timezone.utc)
    assert document(frame)["recorded"]["at"] == when.isoformat()


def test_a_file_that_claims_to_be_older_than_its_ops_is_dated_by_them(tmp_path: Path) -> None:
    folder = write_dumps(tmp_path, one_missing())
    for path in folder.iterdir():
        os.utime(path, ns=(0, 5))
    frame = opened(folder)
    assert frame.recorded is not None
    assert frame.recorded.wall_ns == frame.now_ns
