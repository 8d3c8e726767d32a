"""Who is named when there is nothing but dumps: all that can be, and nobody else."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from flightrecorder.writer import MS, WALL, Recorder, grid, named, world, written
from frtop_probe.ring.fold import fold
from frtop_tui.diagnosis.detectors.context import Context
from frtop_tui.diagnosis.detectors.withheld import withhold
from frtop_tui.diagnosis.finding import Detail, Finding
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import Unreadable
from frtop_tui.export.opening import open_paths
from frtop_tui.report.text import exit_status, text
from frtop_tui.sources.recorded import RecordedSource


def opened(folder: Path) -> Frame:
    return open_paths([folder])


def blamed(frame: Frame) -> set[int]:
    return {rank for verdict in frame.verdicts for rank in verdict.culprits}


def one_missing(size: int = 4, culprit: int = 2) -> list[Recorder]:
    ranks = world(size)
    for one in ranks:
        one.ran("0", count=20)
        if one.rank != culprit:
            one.waits("0")
    return ranks


def test_a_rank_that_has_not_come_is_named(tmp_path: Path) -> None:
    frame = opened(written(tmp_path, one_missing()))
    (verdict,) = frame.verdicts
    assert (verdict.kind, verdict.culprits, fold(verdict.victims)) == ("not_entered", (2,), "0-1,3")
    assert verdict.op is not None
    assert (verdict.op.kind, verdict.op.number) == ("all_reduce", 21)


def test_one_dump_is_one_look_no_more_than_a_suspicion(tmp_path: Path) -> None:
    frame = opened(written(tmp_path, one_missing()))
    (verdict,) = frame.verdicts
    assert (verdict.confidence, verdict.progress) == ("suspect", "unknown")
    assert exit_status(frame) == 5


@pytest.mark.parametrize("backend", ["gloo", "xccl", "hccl", "ncclx", "mccl", "torchcomms-9", ""])
def test_the_backend_is_whatever_it_is(tmp_path: Path, backend: str) -> None:
    ranks = one_missing()
    for one in ranks:
        for entry in one.entries:
            entry["profiling_name"] = f"{backend}:all_reduce"
    assert blamed(opened(written(tmp_path, ranks))) == {2}


@pytest.mark.parametrize(("backend", "named"), [("nccl", {1, 3}), ("gloo", set())])
def test_of_several_gloo_knows_no_sends_so_nobody_is_named(
    backend: str, named: set[int], tmp_path: Path
) -> None:
    """The one may be in a receive from the other, which only gloo's recorder does not know."""
    ranks = world(4)
    for one in ranks:
        mine = "1" if one.rank < 2 else "2"
        one.group(mine, (0, 1) if one.rank < 2 else (2, 3), "tensor")
        one.ran(mine, count=5)
        if one.rank in (0, 2):
            one.waits(mine)
        for entry in one.entries:
            entry["profiling_name"] = f"{backend}:all_reduce"
    frame = opened(written(tmp_path, ranks))
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
def test_no_majority_is_blamed_for_no_known_reason(
    backend: str, waiting: tuple[int, ...], named: set[int], tmp_path: Path
) -> None:
    ranks = world(4)
    for one in ranks:
        one.ran("0", count=20)
        if one.rank in waiting:
            one.waits("0")
        for entry in one.entries:
            entry["profiling_name"] = f"{backend}:all_reduce"
    frame = opened(written(tmp_path, ranks))
    (verdict,) = frame.verdicts
    assert blamed(frame) == named
    if not named:
        assert (verdict.kind, verdict.parties, exit_status(frame)) == (
            "undecided", ((0, 1, 2), (3,)), 4
        )  # fmt: skip
        assert "rank 3 may as well be ahead" in verdict.why.text


def test_json_tells_what_a_pickle_tells(tmp_path: Path) -> None:
    for one in one_missing():
        (tmp_path / f"comm_lib_trace_rank_{one.rank}.json").write_bytes(one.json())
    assert blamed(opened(tmp_path)) == {2}


def test_pickles_and_json_of_several_versions_in_one_folder(tmp_path: Path) -> None:
    old, plain, listed, new = one_missing()
    for entry in old.entries:  # before p2p ops were counted for themselves
        entry["seq_id"] = entry.pop("collective_seq_id")
        entry["time_created_us"] = entry.pop("time_created_ns") // 1000
        del entry["p2p_seq_id"], entry["is_p2p"]
    (tmp_path / "nccl_trace_rank_0").write_bytes(old.pickle())
    (tmp_path / "nccl_trace_rank_1").write_bytes(plain.pickle())
    (tmp_path / "nccl_trace_rank_2.json").write_bytes(listed.json())
    new.version = "3.0"
    (tmp_path / "nccl_trace_rank_3.json").write_bytes(new.json())
    assert blamed(opened(tmp_path)) == {2}


def test_gloo_that_never_says_completed_nor_who_is_in_a_group(tmp_path: Path) -> None:
    ranks = one_missing()
    for one in ranks:
        one.groups = {"": {"name": "", "desc": "", "ranks": "[0, 1]"}}
        for entry in one.entries:
            entry.update(
                profiling_name="gloo:all_reduce",
                state="scheduled",
                time_discovered_completed_ns=None,
            )
    frame = opened(written(tmp_path, ranks))
    assert blamed(frame) == {2}
    assert frame.coverage.expected == 4


def test_two_culprits_in_nested_groups_and_only_they(tmp_path: Path) -> None:
    """Ranks 9 and 14 stand still; that spreads over tensor groups and the pipeline."""
    ranks = grid()
    for one in ranks:
        tensor, expert = named(one, "TENSOR"), named(one, "EXPERT")
        pipeline = named(one, "PIPELINE")
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
        frame = opened(written(folder, ranks, "_dump_", active=active))
        assert blamed(frame) == {9, 14}, active
        assert frame.verdicts[0].culprits == (9, 14)


def test_with_only_active_ops_a_rank_that_is_done_with_it_is_not_blamed(tmp_path: Path) -> None:
    """The root of a broadcast is through; its dump has nothing, but for what it has counted."""
    ranks = world(4)
    for one in ranks:
        one.ran("0", count=5)
        if one.rank == 0:
            one.ran("0", "broadcast")
        elif one.rank != 3:
            one.waits("0", "broadcast")
    assert blamed(opened(written(tmp_path, ranks, active=True))) == {3}


def test_who_wrote_no_dump_may_be_guilty_but_is_not_said_to_be(tmp_path: Path) -> None:
    ranks = one_missing()
    frame = opened(written(tmp_path, [one for one in ranks if one.rank != 2]))
    assert blamed(frame) == set()
    assert frame.verdicts[0].kind == "undecided"
    assert frame.coverage.unheard == (2,)
    assert "no dump of rank 2" in "\n".join(text(frame))
    assert exit_status(frame) == 4


def test_a_culprit_beside_one_without_a_dump(tmp_path: Path) -> None:
    ranks = one_missing(size=5)
    frame = opened(written(tmp_path, [one for one in ranks if one.rank != 4]))
    (verdict,) = frame.verdicts
    assert verdict.culprits == (2,)
    assert any("rank 4" in line for line in verdict.missing)


def test_different_ops_at_one_number(tmp_path: Path) -> None:
    ranks = world(4)
    for one in ranks:
        one.ran("0", count=7)
        one.waits("0", "all_gather" if one.rank == 1 else "all_reduce")
    frame = opened(written(tmp_path, ranks))
    assert frame.verdicts[0].kind == "mismatch"
    assert frame.verdicts[0].culprits == (1,)
    assert frame.verdicts[0].confidence == "suspect"
    assert exit_status(frame) == 3


def test_what_legally_differs_is_no_mismatch(tmp_path: Path) -> None:
    ranks = world(3)
    for one in ranks:
        one.ran("0", "all_to_all", input_sizes=[[one.rank, 8]], output_sizes=[[5 - one.rank, 8]])
        one.ran("0", "gather", output_sizes=[[1024]] * 3 if one.rank == 0 else [])
        one.ran("0", "coalesced", input_sizes=[[]], output_sizes=[[]])
    frame = opened(written(tmp_path, ranks))
    assert frame.verdicts == ()
    assert exit_status(frame) == 0


def test_members_of_a_coalesced_op_share_a_number_and_are_not_compared(tmp_path: Path) -> None:
    ranks = world(2)
    for one in ranks:
        one.ran("0", count=3)
        for size in (64, 32) if one.rank else (32, 64):
            one.ran("0", "ALLREDUCE_coalesced", input_sizes=[[size]], collective_seq_id=4)
    assert opened(written(tmp_path, ranks)).verdicts == ()


def test_sends_meet_receives_by_their_global_ranks(tmp_path: Path) -> None:
    ranks = world(6)
    for one in ranks:
        if one.rank in (3, 5):
            one.group("1", [3, 5], "pair")
    ranks[3].p2p("1", "recv", 5)
    frame = opened(written(tmp_path, ranks))
    (verdict,) = frame.verdicts
    assert verdict.culprits == (5,)
    assert "rank 5 has not sent; rank 3 waits in recv" in verdict.headline


def test_receives_in_a_circle(tmp_path: Path) -> None:
    ranks = world(2)
    ranks[0].p2p("0", "recv", 1)
    ranks[1].p2p("0", "recv", 0)
    frame = opened(written(tmp_path, ranks))
    assert [verdict.kind for verdict in frame.verdicts] == ["cycle"]


def test_a_finding_for_which_nobody_waits_is_not_withheld(tmp_path: Path) -> None:
    """Dumps that contradict themselves lead to one."""
    frame = opened(written(tmp_path, one_missing()))
    context = cast("Context", SimpleNamespace(has_ages=False, ranks=frame.ranks))
    finding = Finding(kind="not_entered", detail=Detail(), key=(), culprits=(2,))
    assert withhold(context, [finding]) == [finding]


def test_all_have_issued_it_and_a_single_dump_does_not_tell_more(tmp_path: Path) -> None:
    ranks = world(3)
    for one in ranks:
        one.ran("0", count=2)
        one.waits("0")
    frame = opened(written(tmp_path, ranks))
    assert [verdict.kind for verdict in frame.verdicts] == ["undecided"]
    assert exit_status(frame) == 4


@pytest.mark.parametrize("aged", [True, False])
def test_a_device_that_is_behind_what_all_have_issued(tmp_path: Path, *, aged: bool) -> None:
    ranks = world(4)
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
    frame = opened(written(tmp_path, ranks))
    (verdict,) = frame.verdicts
    assert (verdict.kind, verdict.culprits, verdict.confidence) == ("stuck", (2,), "suspect")
    assert "the device of rank 2 is behind: others have completed #6" in verdict.headline
    assert ("or its dump is the oldest" in verdict.headline) != aged
    assert fold(verdict.victims) == "0-1,3"
    assert exit_status(frame) == 5


def test_it_is_stuck_when_the_dumps_own_times_show_an_age(tmp_path: Path) -> None:
    ranks = world(3)
    for one in ranks:
        one.group("1", range(3), "other")
        one.waits("0")
        one.clock_ns += 500_000 * MS
        one.ran("1", "barrier", count=2)
    frame = opened(written(tmp_path, ranks))
    assert [verdict.kind for verdict in frame.verdicts] == ["stuck"]


def test_a_dump_that_the_others_prove_to_be_older_blames_nobody(tmp_path: Path) -> None:
    ranks = world(3)
    for one in ranks:
        one.ran("0", count=10 if one.rank == 1 else 30)
        if one.rank != 1:
            one.waits("0")
    frame = opened(written(tmp_path, ranks))
    assert blamed(frame) == set()
    assert frame.ranks[1].state == "unheard"


def test_what_was_issued_just_before_the_dump_is_no_wait(tmp_path: Path) -> None:
    ranks = one_missing()
    written(tmp_path, ranks)
    for one in ranks:
        at = one.clock_ns + 200 * MS
        os.utime(tmp_path / f"nccl_trace_rank_{one.rank}", ns=(at, at))
    assert opened(tmp_path).verdicts == ()


def test_gloo_and_nccl_in_one_job_count_for_themselves(tmp_path: Path) -> None:
    for backend in ("nccl", "gloo"):
        ranks = world(3, backend=backend)
        for one in ranks:
            one.ran("0", "barrier" if backend == "gloo" else "all_reduce", count=4)
            if backend == "gloo" and one.rank != 1:
                one.waits("0", "barrier")
        written(tmp_path, ranks, f"{backend}_trace_rank_")
    frame = opened(tmp_path)
    (verdict,) = frame.verdicts
    assert verdict.culprits == (1,)
    assert verdict.op is not None
    assert (verdict.op.kind, verdict.op.number) == ("barrier", 5)
    assert [len(view.groups) for view in frame.ranks.values()] == [2, 2, 2]


def test_a_job_that_is_through(tmp_path: Path) -> None:
    ranks = world(3)
    for one in ranks:
        one.ran("0", count=30)
    frame = opened(written(tmp_path, ranks))
    assert frame.verdicts == ()
    assert exit_status(frame) == 0


@pytest.mark.parametrize("told", [{}, {"entries": None}, {"pg_status": {"0": {}}}])
def test_dumps_without_anything_in_them_prove_no_health(
    tmp_path: Path, told: dict[str, object]
) -> None:
    for rank in range(2):
        path = tmp_path / f"nccl_trace_rank_{rank}.json"
        path.write_text(json.dumps({"entries": [], **told}))
        os.utime(path, ns=(WALL, WALL + rank))
    frame = opened(tmp_path)
    assert (frame.health, frame.verdicts, exit_status(frame)) == ("undecided", (), 4)
    assert frame.recorded is not None
    assert frame.recorded.wall_ns == WALL + 1
    assert "tell of no op" in frame.recorded.notes[0]


def test_the_line_of_the_users_own_program_is_shown(tmp_path: Path) -> None:
    frames = [
        {"name": "all_reduce", "filename": "/v/site-packages/torch/distributed/c.py", "line": 9},
        {"name": "step", "filename": "/home/me/train.py", "line": 214},
    ]
    ranks = one_missing()
    for one in ranks:
        for entry in one.entries:
            entry["frames"] = frames
    assert "train.py:214" in "\n".join(text(opened(written(tmp_path, ranks))))


def test_broken_and_foreign_files_are_named_and_the_rest_speaks(tmp_path: Path) -> None:
    folder = written(tmp_path, one_missing(size=6))
    whole = (folder / "nccl_trace_rank_0").read_bytes()
    (folder / "nccl_trace_rank_0").write_bytes(whole[: len(whole) // 2])
    (folder / "nccl_trace_rank_1").write_bytes(b"")
    (folder / "nccl_trace_rank_7.json").write_text('{"learning_rate": 3}')
    (folder / "config.json").write_text("{}")
    (folder / "README").write_text("nothing")
    frame = opened(folder)
    assert blamed(frame) == {2}
    assert frame.recorded is not None
    said = "\n".join(frame.recorded.notes)
    assert all(f"rank_{number}" in said for number in (0, 1, 7))
    assert "config" not in said
    assert frame.coverage.unheard == (0, 1)


def test_a_folder_without_anything_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "nccl_trace_rank_0").write_bytes(b"\x80\x02garbage")
    with pytest.raises(Unreadable, match="nccl_trace_rank_0") as caught:
        opened(tmp_path)
    assert "copy the file again" in caught.value.next_step


def test_files_that_are_called_in_another_way_are_taken_when_they_are_named(tmp_path: Path) -> None:
    folder = written(tmp_path, one_missing(), "job-a.")
    frame = open_paths(sorted(folder.iterdir()))
    assert blamed(frame) == {2}


def test_hosts_that_each_count_from_0_cannot_be_told_apart_by_name(tmp_path: Path) -> None:
    ranks = one_missing()
    for one in ranks:
        host, number = divmod(one.rank, 2)
        (tmp_path / f"nccl_trace_rank_node{host}_{number}").write_bytes(one.pickle())
    with pytest.raises(Unreadable, match="cannot be told"):
        opened(tmp_path)


def test_what_a_dump_says_of_its_groups_tells_whose_it_is(tmp_path: Path) -> None:
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


def test_a_dump_opens_again_as_a_capture(tmp_path: Path) -> None:
    folder = tmp_path / "dumps"
    folder.mkdir()
    source = RecordedSource(opened(written(folder, one_missing())))
    source.capture(tmp_path / "again.cap")
    shutil.rmtree(folder)
    assert blamed(open_paths([tmp_path / "again.cap"])) == {2}
