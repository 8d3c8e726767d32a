"""Dumps of other versions and backends, and of recorders besides c10d's."""

from __future__ import annotations

import json
import pickle  # noqa: TID251 - as a recorder written in Python does
from pathlib import Path
from typing import Any

import pytest

from files.flightrecorder.writer import (
    FakeRecorder,
    make_recorders,
    one_missing,
    pickle_like_torch,
    write_dumps,
)
from files.frames import blamed
from frtop_probe.consistency.profiling_names import ProfilingName
from frtop_tui.files.flightrecorder.fields import profiling_name
from frtop_tui.files.loader import open_paths


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("nccl:all_reduce", ProfilingName("nccl", "all_reduce")),
        ("nccl2:recv 0<-3", ProfilingName("nccl2", "recv", 0, 3)),
        ("nccl2:recv 1<-?", ProfilingName("nccl2", "recv", 1, None)),
        ("HcclAllreduce", ProfilingName("", "HcclAllreduce")),
        ("c10d:all_to_all_single", ProfilingName("c10d", "all_to_all_single")),
        ("xccl:send 2->0", ProfilingName("xccl", "send", 2, 0)),
        ("mccl:_all_gather_base", ProfilingName("mccl", "_all_gather_base")),
    ],
)
def test_profiling_names_are_parsed(name: str, parsed: ProfilingName) -> None:
    assert profiling_name({"profiling_name": name}) == parsed


@pytest.mark.parametrize(("version", "lacks"), [("2.4", ("thread_id", "thread_name")), ("9.1", ())])
@pytest.mark.parametrize("library", ["comm_lib_version", "hccl_comm_state", ""])
def test_every_version_and_library_is_read(
    tmp_path: Path, version: str, lacks: tuple[str, ...], library: str
) -> None:
    for one in one_missing():
        values = one.values()
        values["version"] = version
        del values["comm_lib_version"]
        if library:
            values[library] = "2.21.5" if library.endswith("version") else {}
        values["entries"] = [
            {key: value for key, value in entry.items() if key not in lacks}
            for entry in values["entries"]
        ]
        (tmp_path / f"nccl_trace_rank_{one.rank}").write_bytes(pickle_like_torch(values))
    assert blamed(open_paths([tmp_path])) == {2}


def torchcomms(one: FakeRecorder) -> dict[str, Any]:
    """One counter for all ops, no status, group ranks for ranks, nothing ever completed."""
    values = one.values()
    values["pg_status"] = {}
    for config in values["pg_config"].values():
        config["ranks"] = ",".join(map(str, range(len(config["ranks"].split(",")))))
        config["desc"] = "ncclx"
    for number, entry in enumerate(values["entries"]):
        entry.update(collective_seq_id=number, p2p_seq_id=0, is_p2p=False, record_id=number)
        entry.update(state="scheduled", time_discovered_completed_ns=None, op_id=7 + number)
        entry["process_group"] = (entry["process_group"][0], "ncclx")
        entry["profiling_name"] = entry["profiling_name"].partition(" ")[0]
    return values


@pytest.mark.parametrize("wrapped", [False, True])
def test_the_shared_counter_of_torchcomms_is_split_by_group(tmp_path: Path, wrapped: bool) -> None:
    """Ranks 0 and 1 use their pair more often, so that their counters are ahead."""
    ranks = make_recorders(4)
    for one in ranks:
        pair = [0, 1] if one.rank < 2 else [2, 3]
        one.group(f"pair{one.rank // 2}", pair, "")
        one.ran("0", count=6)
        one.ran(f"pair{one.rank // 2}", count=30 if one.rank < 2 else 3)
        if one.rank != 3:
            one.waits("0")
        values = torchcomms(one)
        values["entries"] = values["entries"][4 if wrapped else 0 :]
        (tmp_path / f"comm_lib_trace_rank_{one.rank}").write_bytes(pickle_like_torch(values))
    frame = open_paths([tmp_path])
    assert frame.coverage.unreachable == ()
    assert blamed(frame) == {3}
    assert frame.verdicts[0].op is not None
    assert frame.verdicts[0].op.number == (None if wrapped else 7)


def test_a_receive_from_an_unknown_peer_blames_nobody(tmp_path: Path) -> None:
    ranks = make_recorders(2)
    for one in ranks:
        one.ran("0", count=4)
    ranks[0].p2p("0", "recv", 1)
    for one in ranks:
        (tmp_path / f"rank_{one.rank}").write_bytes(pickle_like_torch(torchcomms(one)))
    frame = open_paths([tmp_path])
    assert [verdict.kind for verdict in frame.verdicts] == ["undecided"]
    assert blamed(frame) == set()


def test_dumps_of_the_profilers_recorder_are_read(tmp_path: Path) -> None:
    """It pickles in Python: other opcodes, another status, durations, members in entries."""
    for one in one_missing():
        values = one.values()
        values["pg_status"] = {
            "0": dict.fromkeys(("last_enqueued_collective", "last_completed_collective"), 21)
        }
        for entry in values["entries"]:
            entry.update(duration_ms=0.25, frames=[], process_group_ranks=[0, 1, 2, 3])
            del entry["thread_id"], entry["thread_name"]
        values["pg_status"]["0"]["last_enqueued_collective"] -= one.rank == 2
        path = tmp_path / f"comm_lib_trace_rank_{one.rank}"
        path.write_bytes(pickle.dumps(values))
    assert blamed(open_paths([tmp_path])) == {2}


def test_a_status_that_counts_calls_is_not_used_as_a_collective_number(tmp_path: Path) -> None:
    """Hooks count every call: the three calls of a coalesced op are one collective."""
    ranks = make_recorders(3, backend="nccl2")
    for one in ranks:
        one.ran("0", count=5)
        if one.rank != 1:
            one.waits("0")
        for index, entry in enumerate(one.entries):
            entry["op_id"] = 3 * (index + 1)
        calls = 3 * len(one.entries)
        one.status["0"].update(last_enqueued_collective=calls, last_completed_collective=15)
    assert blamed(open_paths([write_dumps(tmp_path, ranks, active=True)])) == {1}


@pytest.mark.parametrize("timed", [True, False])
def test_a_device_that_has_not_started_a_kernel_that_others_run_is_named(
    tmp_path: Path, timed: bool
) -> None:
    """`started` is recorded only with timing: without it, its absence says nothing."""
    ranks = make_recorders(4)
    for one in ranks:
        one.ran("0", count=5)
        one.waits("0")
        for entry in one.entries:
            if timed or one.rank != 3:
                entry["time_discovered_started_ns"] = entry["time_created_ns"] + 5
        if one.rank != 3:
            one.entries[-1]["state"] = "started"
        else:
            one.entries[-1]["time_discovered_started_ns"] = None
    frame = open_paths([write_dumps(tmp_path, ranks)])
    (verdict,) = frame.verdicts
    if timed:
        assert (verdict.kind, verdict.culprits) == ("stuck", (3,))
        assert "the device of rank 3 has not begun #6" in verdict.headline
    else:
        assert (verdict.kind, verdict.culprits) == ("undecided", ())


def test_a_device_that_stopped_in_a_group_of_two_is_named(tmp_path: Path) -> None:
    """A pair has no minority, but no rank can complete an all_gather alone."""
    ranks = make_recorders(4)
    for one in ranks:
        pair = [0, 1] if one.rank < 2 else [2, 3]
        one.group("1" if one.rank < 2 else "2", pair, "TENSOR")
        name = "1" if one.rank < 2 else "2"
        one.ran(name, count=10)
        if one.rank == 3:
            for _ in range(6):
                one.waits(name, "all_gather")
        else:
            one.ran(name, "all_gather", count=4)
            one.waits(name, "all_gather")
            one.waits(name, "all_gather")
        one.waits("0")
    frame = open_paths([write_dumps(tmp_path, ranks)])
    assert blamed(frame) == {3}
    assert frame.verdicts[0].kind == "stuck"
    assert any("for the same cause" in note for note in frame.notes)


def test_json_with_spaces_and_lists_of_numbers_is_read(tmp_path: Path) -> None:
    for one in one_missing():
        values = json.loads(one.json())
        values["pg_config"]["0"]["ranks"] = [0, 1, 2, 3]
        (tmp_path / f"fr_rank{one.rank}.json").write_text("\n " + json.dumps(values, indent=2))
    assert blamed(open_paths([tmp_path])) == {2}
