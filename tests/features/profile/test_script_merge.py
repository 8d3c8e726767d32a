"""`frtop profile traces/`: what a script's own torch.profiler wrote becomes one trace."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from e2e.conftest import JOBS
from features.profile.script_traces import BASE, Event, document, gloo, nccl, span, write
from files.perfetto import LOST, ask_perfetto
from files.trace_events import problems
from frtop_tui.cli import main
from frtop_tui.features.profile import content, script_merge
from frtop_tui.features.profile.reader import read_allocations

MS = 1_000_000


def merged(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return found


def profile(*arguments: object) -> int:
    return main(["profile", *map(str, arguments)])


def two(folder: Path, ahead_ns: int = 0, make: Callable[[int], Sequence[Event]] = gloo) -> Path:
    """A folder with the traces of two ranks; the clock of rank 1 is ahead."""
    folder.mkdir(exist_ok=True)
    for rank, ahead in ((0, 0), (1, ahead_ns)):
        write(folder / f"node_{4000 + rank}.179.pt.trace.json.gz",
              document(rank, make(rank), ahead_ns=ahead))  # fmt: skip
    return folder


@pytest.mark.parametrize("ahead", [0, 7 * MS, -3600 * 1000 * MS])
@pytest.mark.parametrize(
    ("make", "shared"),
    [
        pytest.param(gloo, 8, id="gloo: by place in the step, without what one may end early"),
        pytest.param(lambda rank: nccl(rank, numbers=True), 8, id="NCCL: by sequence number"),
        pytest.param(lambda rank: nccl(rank, numbers=False), 8, id="NCCL of older versions"),
    ],
)
def test_clocks_are_aligned_by_collectives(
    make: Callable[[int], Sequence[Event]], shared: int, ahead: int, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    out = tmp_path / "all.json.gz"
    assert profile(two(tmp_path / "traces", ahead, make), "-o", out) == 0
    said = capsys.readouterr()
    assert said.out.strip() == str(out)
    document = merged(out)
    about = document["otherData"]["ranks"]["1"]
    assert about["aligned"]
    assert about["shared_collectives"] == shared
    assert abs(ahead + about["clock_shifted_by_ns"]) <= about["clock_error_at_most_ns"] < MS
    assert ("away from what the clock says" in said.err) == bool(ahead)
    assert problems(document) == []
    steps = [e for e in document["traceEvents"] if e["name"] == "ProfilerStep#3"]
    assert len({e["pid"] for e in steps}) == 2
    assert abs(steps[0]["ts"] - steps[1]["ts"]) < 1000
    names = {e["args"]["name"] for e in document["traceEvents"] if e["name"] == "process_name"}
    assert {"rank 0 (node0): torch", "rank 1 (node1): torch"} <= names


@pytest.mark.parametrize(
    "of_rank_1",
    [
        pytest.param(document(1, gloo(1, ("barrier", "all_reduce"))), id="other collectives"),
        pytest.param(document(1, gloo(1), ("0", "1")), id="gloo, and not in the same groups"),
        pytest.param(document(1, gloo(1), distributedInfo={"rank": 1}), id="groups unknown"),
        pytest.param(document(1, [span("aten::mm", 0.0, 9.0, 1, "cpu_op")]), id="none"),
    ],
)
def test_a_rank_that_shares_nothing_is_said_not_to_be_aligned(
    of_rank_1: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "a.json", document(0, gloo(0)))
    write(tmp_path / "b.json", of_rank_1)
    out = tmp_path / "all.json.gz"
    assert profile(tmp_path / "a.json", tmp_path / "b.json", "-o", out) == 0
    assert "rank 1: not aligned" in capsys.readouterr().err
    about = merged(out)["otherData"]
    assert about["not_aligned"] == [1]
    assert about["clock_error_at_most_ns"] is None
    assert about["ranks"]["1"]["clock_error_estimated_ns"] is None
    names = {e["args"]["name"] for e in merged(out)["traceEvents"] if e["name"] == "process_name"}
    assert "rank 1 (node1, not aligned): torch" in names


def test_messages_do_not_count_among_collectives(tmp_path: Path) -> None:
    folder = two(tmp_path / "t")
    first = min(folder.iterdir())
    sends = [span("gloo:send", 500.0, 9.0, 0, "user_annotation")]
    write(first, document(0, [*gloo(0), *sends]))
    assert profile(folder, "-o", tmp_path / "o.json.gz") == 0
    assert merged(tmp_path / "o.json.gz")["otherData"]["not_aligned"] == []


def test_ops_of_gloo_that_overlap_have_lanes_of_their_own(tmp_path: Path) -> None:
    """They begin on the thread that trains and end on another: no lane of a thread nests them."""
    ops = [
        span("c10d::send", 10.0, 5.0, 0, "cpu_op"),
        *(span("gloo:all_reduce", at, 100.0, 0, "user_annotation") for at in (12.0, 30.0, 112.0)),
    ]
    write(tmp_path / "rank0.json", document(0, ops))
    assert profile(tmp_path / "rank0.json", "-o", tmp_path / "o.json.gz") == 0
    found = merged(tmp_path / "o.json.gz")
    assert problems(found) == []
    assert sum(e["name"] == "gloo:all_reduce" for e in found["traceEvents"]) == 3
    lanes = [e for e in found["traceEvents"] if e.get("args", {}).get("name") == "gloo"]
    assert len(lanes) == 2


@pytest.mark.parametrize(
    ("name", "pattern", "rank"),
    [
        ("rank-5.Jul_15.pt.trace.json", (), "5"),
        ("trace_rank_12.json.gz", (), "12"),
        ("node_gpu3.json", ("--ranks-from", "node_gpu{rank}.json"), "3"),
        ("host_4711.json", (), None),
    ],
)
def test_a_trace_without_a_rank_has_it_from_its_name(
    name: str, pattern: tuple[str, ...], rank: str | None, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    file = write(tmp_path / name, document(0, gloo(0), distributedInfo=None))
    out = tmp_path / "o.json.gz"
    assert profile(file, "-o", out, *pattern) == (1 if rank is None else 0)
    if rank is None:
        said = capsys.readouterr().err
        assert "is unknown: neither its content nor its name says it" in said
        assert "--ranks-from" in said
    else:
        assert [*merged(out)["otherData"]["ranks"]] == [rank]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        pytest.param(b"", "is cut", id="empty"),
        pytest.param(json.dumps(document(1, gloo(1))).encode()[:-300], "is cut", id="cut"),
        pytest.param(gzip.compress(json.dumps(document(1, gloo(1))).encode())[:-40], "is cut",
                     id="cut gzip"),
        pytest.param(b"\x1f\x8b" + b"\x00" * 50, "no trace of torch's profiler", id="no gzip"),
        pytest.param(b"[1, 2]", "no trace of torch's profiler", id="foreign JSON"),
        pytest.param(b'{"a": "\x1b[31m"}', "no trace of torch's profiler", id="foreign object"),
        pytest.param(b'{"traceEvents": [{"ph": "X", "ts": "soon"}]}', "no trace", id="no time"),
        pytest.param(b'{"traceEvents": []}', "it has no events", id="no events"),
        pytest.param(json.dumps(document(-1, gloo(1))).encode(), "-1 is no rank", id="no rank"),
        pytest.param(b"[" * 100_000, "no trace of torch's profiler", id="deep"),
        pytest.param(json.dumps({"traceEvents": [], "otherData": {"begin_unix_ns": "1"}}).encode(),
                     "is merged already", id="merged already"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_trace_is_named_and_the_others_are_merged(
    data: bytes, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "rank1.json"
    bad.write_bytes(data)
    out = tmp_path / "o.json.gz"
    assert profile(bad, "-o", out) == 1
    said = capsys.readouterr().err
    assert why in said
    assert "\x1b" not in said
    assert not out.exists()
    good = write(tmp_path / "rank0.json", document(0, gloo(0)))
    assert profile(bad, good, "-o", out) == 1
    assert why in capsys.readouterr().err
    found = merged(out)["otherData"]
    assert [*found["ranks"]] == ["0"]
    assert why in found["missing"][0]


def test_sizes_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(content, "MOST_BYTES", 1000)
    assert profile(two(tmp_path / "t"), "-o", tmp_path / "o.json.gz") == 1
    assert "more than 0 GiB of events" in capsys.readouterr().err
    monkeypatch.undo()
    monkeypatch.setattr(script_merge, "MOST_RANKS", 1)
    assert profile(tmp_path / "t", "-o", tmp_path / "o.json.gz") == 1
    assert "2 ranks are too many for one trace" in capsys.readouterr().err
    assert profile(tmp_path / "t", "--rank", 1, "-o", tmp_path / "o.json.gz") == 0
    assert [*merged(tmp_path / "o.json.gz")["otherData"]["ranks"]] == ["1"]


def test_traces_of_one_process_are_one_rank_and_those_of_two_runs_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A schedule that repeats writes a file per cycle."""
    folder = two(tmp_path / "t")
    for rank in (0, 1):
        memory = {"ph": "i", "s": "t", "name": "[memory]", "pid": 40 + rank, "tid": 40 + rank,
                  "ts": 9.0, "args": {"Device Type": 0, "Device Id": -1, "Bytes": 64,
                                      "Total Allocated": 64, "Total Reserved": 0}}  # fmt: skip
        later = document(rank, [*gloo(rank), memory], ahead_ns=500 * MS)
        write(folder / f"node_{4000 + rank}.180.pt.trace.json", later)
    out = tmp_path / "o.json.gz"
    assert profile(folder, "-o", out) == 0
    found = merged(out)
    assert problems(found) == []
    assert len(found["otherData"]["ranks"]["1"]["files"]) == 2
    assert int(found["otherData"]["begin_unix_ns"]) == BASE
    at = sorted(e["ts"] for e in found["traceEvents"] if e["name"] == "ProfilerStep#3")
    assert at[2] - at[0] == 500_000
    assert [(one.rank, one.peak) for one in read_allocations(out)] == [(0, 64), (1, 64)]
    other = [{**event, "pid": 99} for event in gloo(1)]
    write(folder / "old.json", document(1, other))
    assert profile(folder, "-o", tmp_path / "p.json.gz") == 1
    assert "rank 1 has traces of two processes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--steps", "3"), "--steps is for ranks that run"),
        (("--execution-trace",), "leave out --execution-trace"),
        (("--rank", "7"), "the files have none of these ranks"),
    ],
)
def test_what_does_not_fit_files_is_refused(
    arguments: tuple[str, ...], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = two(tmp_path / "t"), tmp_path / "o.json.gz"
    assert profile(folder, "-o", out, *arguments) in (1, 2)
    assert why in capsys.readouterr().err
    assert not out.exists()


def test_nothing_is_written_over_and_a_folder_without_traces_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = two(tmp_path / "t")
    (folder / "rank0.execution.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert profile(folder) == profile(folder) == 0
    written = sorted(path.name for path in tmp_path.glob("*.gz"))
    assert written == ["frtop-merged-profile-2.json.gz", "frtop-merged-profile.json.gz"]
    assert profile(folder, "-o", written[0]) == 2
    (tmp_path / "empty").mkdir()
    assert profile("empty", "-o", "x.json.gz") == 1
    assert "empty has no .json or .json.gz" in capsys.readouterr().err
    assert profile("--ranks-from", "a{rank}") == 2


@pytest.mark.job
@pytest.mark.long
def test_traces_of_a_real_job_are_aligned_and_open_in_perfetto(tmp_path: Path) -> None:
    """On one host the clocks agree: of a clock that was moved, the move is found."""
    folder, out = tmp_path / "traces", tmp_path / "o.json.gz"
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone",
         "--nproc-per-node", "2", str(JOBS / "profiles_itself.py"), str(folder)],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    moved = 250 * MS
    for file in folder.iterdir():
        trace = json.loads(file.read_bytes())
        if trace["distributedInfo"]["rank"] == 1:
            trace["baseTimeNanoseconds"] += moved
            file.write_text(json.dumps(trace))
    assert profile(folder, "-o", out) == 0
    found = merged(out)
    assert problems(found) == []
    ranks = found["otherData"]["ranks"]
    assert [*ranks] == ["0", "1"]
    assert all(len(one["files"]) == 2 for one in ranks.values())
    residual = abs(moved + ranks["1"]["clock_shifted_by_ns"])
    assert residual <= ranks["1"]["clock_error_at_most_ns"] < moved
    slices = sum(event["ph"] == "X" for event in found["traceEvents"])
    lost, shown = ask_perfetto(out, LOST, "select count(*) from slice")
    assert lost == []
    assert shown[0] >= slices
