"""Profiles of several ranks in one trace: processes, clocks, and frtop's numbers."""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from files.trace_events import problems
from frtop_probe import wire
from frtop_probe.ring.rank_ranges import unfold
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import NotWritten
from frtop_tui.features.profile.merged import Contents, beside, write_profiles
from frtop_tui.features.profile.reader import read_profile
from frtop_tui.features.profile.torch_lanes import STEPS_LANE, RankTrace
from frtop_tui.features.profile.unnamed_file import UnnamedFile
from frtop_tui.files.formats.chrome_trace import chrome_trace
from frtop_tui.files.formats.rank_ops import rank_ops, unix_offset_ns
from screens.scenes import hung

BASE = 1_700_000_000_000_000_000
"""Of the times in torch's file; in µs since then a float has nanoseconds."""
WALL_IS_AHEAD_NS = 3_600_000_000_000
"""The rank's wall clock is wrong: only its monotonic one is compared with others."""


def issued(frame: Frame, rank: int) -> tuple[int, int]:
    """When a rank issued its last op, by its own monotonic clock, and its number."""
    view = frame.ranks[rank]
    last = [one for one in rank_ops(frame, view) if not one.op.pseudo][-1]
    return last.begin_ns - unix_offset_ns(frame, view), last.op.number


def torch_trace(folder: Path, frame: Frame, rank: int) -> RankTrace:
    """As Kineto writes it: an op of c10d from 10 µs before to 30 µs after its issue."""
    at, _ = issued(frame, rank)
    wall = at + 1_600_000_000_000_000_000 + WALL_IS_AHEAD_NS
    begin = (wall - BASE) / 1000 - 10
    pid = 4000 + rank
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": "python"}},
        {"ph": "X", "cat": "cpu_op", "name": "c10d::allreduce_", "pid": pid, "tid": 7,
         "ts": begin, "dur": 40.0, "args": {"External id": 5}},
        {"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "pid": pid, "tid": 7,
         "ts": begin + 20, "dur": 5.0, "args": {"Collective name": "allreduce"}},
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": pid, "tid": 7, "ts": begin + 60,
         "dur": 1.0},
        {"ph": "X", "cat": "user_annotation", "name": "Optimizer.step#SGD.step", "pid": pid,
         "tid": 7, "ts": begin + 70, "dur": 30.0},
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "pid": pid, "tid": 7,
         "ts": begin - 2000, "dur": 2080.0},
        {"ph": "M", "name": "thread_name", "pid": pid, "tid": 7, "ts": begin - 9000,
         "args": {"name": "thread 7"}},
        {"ph": "X", "cat": "cpu_op", "name": "aten::early", "pid": pid, "tid": 7,
         "ts": begin - 9000, "dur": 1.0},
        {"ph": "X", "cat": "kernel", "name": "ncclDevKernel", "pid": 0, "tid": 20,
         "ts": begin + 50, "dur": 9.0, "args": {}},
        {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 5, "pid": pid, "tid": 7, "ts": begin},
        {"ph": "f", "cat": "ac2g", "name": "ac2g", "id": 5, "pid": 0, "tid": 20, "ts": begin + 50,
         "bp": "e"},
        {"ph": "i", "s": "t", "name": "Record Window End", "pid": "", "tid": "", "ts": begin + 90},
    ]  # fmt: skip
    document = {"baseTimeNanoseconds": BASE, "deviceProperties": [], "traceEvents": events}
    file = unnamed(folder, json.dumps(document))
    clocks = tuple((at + more, wall + more) for more in (-1_000_000, 1_000_000))
    return RankTrace(rank, frame.ranks[rank].host, {"trace": file}, clocks)


def unnamed(folder: Path, text: str) -> UnnamedFile:
    file = UnnamedFile(folder)
    file.write(text.encode())
    return file


@pytest.mark.parametrize(
    ("pid", "expected"),
    [(11, "torch"), (4711, "torch"), (5, "torch"), (3, "torch and GPU 3")],
)
def test_a_process_with_a_small_number_is_no_gpu(pid: int, expected: str, tmp_path: Path) -> None:
    """In a container a rank may have pid 5, on a host with GPUs 3 and 5, of which it uses 3."""
    frame = hung()
    label = {"ph": "M", "name": "process_labels", "tid": 0}
    events = [
        {**label, "pid": pid, "args": {"labels": "CPU"}},
        *({**label, "pid": gpu, "args": {"labels": f"GPU {gpu}"}} for gpu in (3, 5)),
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": pid, "tid": 7, "ts": 1, "dur": 1.0},
        {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 3, "tid": 20, "ts": 1, "dur": 1.0},
    ]
    trace = torch_trace(tmp_path, frame, 0)
    document = {"baseTimeNanoseconds": BASE, "deviceProperties": [], "traceEvents": events}
    trace = dataclasses.replace(trace, files={"trace": unnamed(tmp_path, json.dumps(document))})
    path, *_ = write(tmp_path / "out.json.gz", [trace], frame)
    names = {e["args"]["name"] for e in by_name(merged(path)["traceEvents"], "process_name")}
    whats = {name.rpartition(": ")[2] for name in names if name.startswith("rank 0 (")}
    gpus = {f"GPU {gpu}" for gpu in (3, 5) if gpu != pid}
    assert whats == {expected, "frtop"} | gpus


def write(
    path: Path, traces: Sequence[RankTrace], frame: Frame, *, missing: Sequence[str] = (),
    separate: bool = False,
) -> tuple[Path, int, Contents]:  # fmt: skip
    return write_profiles(path, traces, frame, {}, missing, separate=separate)


def merged(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return found


def by_name(events: list[Mapping[str, Any]], name: str) -> list[Mapping[str, Any]]:
    return [event for event in events if event["name"] == name]


def test_ranks_are_processes_on_one_clock_with_frtops_numbers(tmp_path: Path) -> None:
    frame = hung()
    traces = [torch_trace(tmp_path, frame, rank) for rank in (0, 1)]
    missing = ["rank 2 is not in it: gone"]
    path, size, contents = write(tmp_path / "out.json.gz", traces, frame, missing=missing)
    assert (size, contents.troubles) == (path.stat().st_size, [])
    assert path.stat().st_mode & 0o777 == 0o600
    document = merged(path)
    events, about = document["traceEvents"], document["otherData"]
    names = {e["pid"]: e["args"]["name"] for e in by_name(events, "process_name")}
    assert len(names) == len(by_name(events, "process_name"))
    assert {event["pid"] for event in events} <= names.keys()
    assert sum(name.endswith("): torch") for name in names.values()) == 2
    assert sum(name.endswith("): GPU 0") for name in names.values()) == 2
    begin = int(about["begin_unix_ns"])
    for rank in (0, 1):
        at, number = issued(frame, rank)
        expected = (at + unix_offset_ns(frame, frame.ranks[rank]) - begin) / 1000
        (pid,) = (pid for pid, name in names.items()
                  if name.startswith(f"rank {rank} ") and name.endswith(": torch"))  # fmt: skip
        mine = [event for event in events if event["pid"] == pid]
        (op,), (comms,) = by_name(mine, "c10d::allreduce_"), by_name(mine, "record_param_comms")
        assert op["ts"] == pytest.approx(expected - 10, abs=0.01)
        assert op["args"]["frtop number"] == comms["args"]["frtop number"] == number
        assert op["args"]["External id"] == 5
        assert "frtop number" not in by_name(mine, "aten::mm")[0].get("args", {})
        assert about["ranks"][str(rank)]["wall_clock_jumped_ns"] == 0
    flows = by_name(events, "ac2g")
    assert len({event["id"] for event in flows}) == 2  # those of two ranks are not joined
    steps = by_name(events, "ProfilerStep#3")
    assert {event["tid"] for event in steps} == {STEPS_LANE}
    assert all(event["ts"] == 0 and event["dur"] > 1000 for event in steps)
    assert problems(document) == []
    assert about["missing"] == missing


def test_a_trace_that_is_torn_is_named_and_the_others_are_there(tmp_path: Path) -> None:
    frame = hung()
    good, torn = (torch_trace(tmp_path, frame, rank) for rank in (0, 1))
    half = unnamed(tmp_path, '{"traceEvents": [{"ph": "X"')
    torn = RankTrace(torn.rank, torn.host, {"trace": half}, torn.clocks)
    _, _, contents = write(tmp_path / "out.json.gz", [good, torn], frame)
    assert "the trace of rank 1 cannot be read" in contents.troubles[0]
    with pytest.raises(NotWritten):
        write(tmp_path / "none.json.gz", [torn], frame)
    assert [path.name for path in tmp_path.iterdir()] == ["out.json.gz"]


def test_nothing_is_written_over_and_execution_traces_lie_beside(tmp_path: Path) -> None:
    frame = hung()
    trace = torch_trace(tmp_path, frame, 0)
    execution = unnamed(tmp_path, "{}")
    trace = RankTrace(0, trace.host, {**trace.files, "execution": execution}, trace.clocks)
    first = tmp_path / "out.json.gz"
    first.write_text("mine")
    path, _, _ = write(first, [trace], frame)
    assert (first.read_text(), path != first) == ("mine", True)
    assert beside(path, 0).read_text() == "{}"
    folder, _, _ = write(tmp_path / "each", [trace], frame, separate=True)
    assert sorted(p.name for p in folder.iterdir()) == ["rank0.execution.json", "rank0.json"]


def test_a_clock_that_jumped_widens_the_error(tmp_path: Path) -> None:
    frame = hung()
    trace = torch_trace(tmp_path, frame, 0)
    (at, wall), (end, end_wall) = trace.clocks
    jumped = RankTrace(0, trace.host, trace.files, ((at, wall), (end, end_wall + 5_000_000)))
    hosts = tuple(replace(host, clock_error_ns=1000) for host in frame.hosts)
    path, _, _ = write(tmp_path / "out.json.gz", [jumped], replace(frame, hosts=hosts))
    about = merged(path)["otherData"]["ranks"]["0"]
    assert about["wall_clock_jumped_ns"] == 5_000_000
    assert about["clock_error_at_most_ns"] == 5_001_000


def test_the_description_of_a_model_is_in_it_unless_it_is_damaged(tmp_path: Path) -> None:
    frame = hung()
    known, damaged = (torch_trace(tmp_path, frame, rank) for rank in (0, 1))
    module = {"root": "Net", "path": "mlp", "type": "torch.nn.Linear", "parameters": []}
    texts = json.dumps({"modules": [module]}), '{"modules": 3}'
    traces = [
        RankTrace(one.rank, one.host, {**one.files, "modules": unnamed(tmp_path, text)}, one.clocks)
        for one, text in zip((known, damaged), texts, strict=True)
    ]
    path, _, contents = write(tmp_path / "out.json.gz", traces, frame)
    assert not contents.troubles
    about = merged(path)["otherData"]["ranks"]
    assert about["0"]["modules"]["modules"][0]["type"] == "torch.nn.Linear"
    assert about["1"]["modules"] is None
    found = read_profile(path)
    assert (found.ranks, [*found.models], found.recorded) == ((0, 1), [0], True)


def test_ops_have_what_a_reader_counts_by_module(tmp_path: Path) -> None:
    frame = hung()
    issuer = wire.Issuer("backward", "layers.3", "Net", "graph 1")
    group = next(iter(frame.ranks[0].groups))
    signature = wire.Signature("all_gather", inputs=(wire.TensorSpec("float32", (4,)),))
    pending = tuple(
        replace(op, issuer=issuer, signature=signature, group=group)
        for op in frame.ranks[0].pending
    )
    ranks = {0: replace(frame.ranks[0], pending=pending, snapshot=None, blocked_on=None)}
    events = json.loads(chrome_trace(replace(frame, ranks=ranks)))["traceEvents"]
    args = [one["args"] for one in events if one.get("args", {}).get("phase")]
    members = len(unfold(frame.ranks[0].groups[group].ranks))
    assert args
    for one in args:
        assert (one["module root"], one["module"]) == ("Net", "layers.3")
        assert (one["module part"], one["kind"]) == ("graph 1", "all_gather")
        assert one["bytes"] == 16 * members
