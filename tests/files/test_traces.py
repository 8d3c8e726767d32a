"""Traces for Perfetto, and dumps for torch's analyzer: what their readers demand."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from files.test_recorded_bytes import MISMATCH, SLEEPING
from files.trace_events import problems
from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame
from frtop_tui.files.capture import collected
from frtop_tui.files.flightrecorder.dump_file import read_dumps
from frtop_tui.files.formats.chrome_trace import chrome_trace
from frtop_tui.files.formats.flight_dumps import NOTES, PREFIX, flight_dumps
from frtop_tui.files.formats.writing import write_export
from frtop_tui.files.loader import open_paths
from history_rows import HistoryRow, packed
from screens.rare_scenes import SCENES as ODD
from screens.scenes import SCENES, hung

ANALYZE = """
import sys
from torch.distributed.flight_recorder.fr_trace import main
for folder in sys.argv[1:]:
    print("==", folder, file=sys.stderr, flush=True)
    try:
        main([folder])
    except AssertionError as error:
        print(error, file=sys.stderr)
"""


def trace_of(frame: Frame) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(chrome_trace(frame))
    return found


def slices(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


@pytest.mark.parametrize("scene", [*SCENES.values(), *ODD.values()])
def test_a_trace_is_of_the_documented_format(scene: Callable[[], Frame]) -> None:
    trace = trace_of(scene())
    assert all(isinstance(event["ts"], int | float) for event in trace["traceEvents"]
               if event["ph"] != "M")  # fmt: skip
    # What lies before the beginning of a scene has negative times.
    assert [one for one in problems(trace) if not one.startswith("ts is not a time")] == []
    lanes: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for event in slices(trace):
        lanes[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in lanes.values():
        for (_, end), (begin, _) in pairwise(sorted(spans)):
            assert begin >= end - 1e-3
    bound_to_slices(trace)


def test_marks_have_lanes_of_their_own() -> None:
    frame = hung()
    view = frame.ranks[37]
    assert view.snapshot is not None
    last = max(op.issued_ns for op in view.snapshot.ops)
    marks = (
        wire.Mark("step", last - 900_000_000, last - 900_000_000, 411),
        wire.Mark("fetch", last - 890_000_000, last - 790_000_000),
        wire.Mark("fetch", last - 880_000_000, last - 870_000_000),  # of another thread
        wire.Mark("backward", last - 700_000_000, last - 200_000_000, 412),
        wire.Mark("note", last - 150_000_000, last - 150_000_000, text="checkpoint written"),
        wire.Mark("step", last - 100_000_000, last - 100_000_000, 412, samples=4096),
        wire.Mark("fetch", last - 50_000_000, 0),
    )
    seen = replace(view, snapshot=replace(view.snapshot, marks=marks))
    trace = trace_of(replace(frame, ranks={**frame.ranks, 37: seen}))
    of_rank = [event for event in trace["traceEvents"] if event["pid"] == 47]
    lanes = {e["tid"]: e["args"]["name"] for e in of_rank if e["name"] == "thread_name"}
    found = [
        (lanes[e["tid"]], e["name"], round(e["dur"]))
        for e in of_rank
        if e["ph"] == "X" and e["tid"] >= 900
    ]
    assert found[:-1] == [
        ("steps", "step 412", 800_000),
        ("DataLoader", "fetch", 100_000),
        ("DataLoader", "fetch", 10_000),
        ("phases (host)", "backward", 500_000),
    ]
    assert found[-1][:2] == ("DataLoader", "PENDING fetch")
    (step,) = (e for e in of_rank if e["name"] == "step 412")
    assert step["args"] == {"samples": 4096}
    instants = {e["name"] for e in of_rank if e["ph"] == "i"}
    assert {"step 411 ended", "step 412 ended", "note: checkpoint written"} <= instants


def bound_to_slices(trace: dict[str, Any]) -> None:
    """Arrows begin once, end once, and each end lies at the beginning of a slice."""
    begins = {(one["pid"], one["tid"], one["ts"]) for one in slices(trace)}
    flows: dict[int, list[str]] = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] in "stf":
            assert (event["pid"], event["tid"], event["ts"]) in begins
            flows[event["id"]].append(event["ph"])
    for kinds in flows.values():
        assert (kinds[0], kinds[-1]) == ("s", "f")
        assert set(kinds[1:-1]) <= {"t"}


def test_pending_ops_reach_the_end_and_are_named() -> None:
    trace = trace_of(hung())
    pending = [one for one in slices(trace) if one["name"].startswith("PENDING all_reduce #8812")]
    assert len(pending) == 63
    end = max(one["ts"] + one["dur"] for one in slices(trace))
    for one in pending:
        assert one["ts"] + one["dur"] == pytest.approx(end)
        assert one["dur"] == pytest.approx(252e6)
    (verdict,) = [one for one in slices(trace) if one["cat"] == "verdict"]
    assert "rank 37 (node4) has not entered" in verdict["name"]
    assert verdict["args"]["next"].startswith("check the mount")


def test_an_arrow_goes_through_all_ranks_of_an_op() -> None:
    trace = trace_of(hung())
    where = {(one["pid"], one["tid"], one["ts"]): one["name"] for one in slices(trace)}
    flows: dict[int, list[str]] = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] in "stf":
            flows[event["id"]].append(where[event["pid"], event["tid"], event["ts"]])
    assert 63 in [names.count("PENDING all_reduce #8812") for names in flows.values()]


def test_ends_that_are_not_known_are_said() -> None:
    frame = open_paths([SLEEPING])
    view = frame.ranks[0]
    signature = wire.Signature("all_reduce")
    begin = view.reported_ns - view.clock_ns - 10**9
    ops = (
        wire.Op(101, 1, 3, signature, None, begin, begin + 1000, late=True),
        wire.Op(102, 1, 4, signature, None, begin, begin + 1000, tracked=False),
        wire.Op(103, 1, 5, signature, None, begin, -begin - 1000),
    )
    looked = wire.Snapshot(view.key, begin, ops=ops)
    ranks = {0: replace(view, snapshot=looked, pending=(), blocked_on=None, group_progress={})}
    ends = {
        one["name"]: one["args"]["end"] for one in slices(trace_of(replace(frame, ranks=ranks)))
        if "end" in one["args"]
    }  # fmt: skip
    assert ends["all_reduce #3"].startswith("at most")
    assert ends["all_reduce #4"].startswith("not known")
    assert ends["all_reduce #5"] == "failed"


def test_the_error_of_the_clocks_is_in_the_trace() -> None:
    frame = hung()
    hosts = tuple(replace(one, clock_error_ns=1000 * n) for n, one in enumerate(frame.hosts))
    about = trace_of(replace(frame, hosts=hosts))["otherData"]
    assert about["clock_error_at_most_ns"] == 1000 * (len(hosts) - 1)
    unmeasured = (*hosts[:-1], replace(hosts[-1], clock_error_ns=None))
    assert trace_of(replace(frame, hosts=unmeasured))["otherData"]["clock_error_at_most_ns"] is None


def without_rank(frame: Frame, rank: int) -> Frame:
    return replace(frame, ranks={n: view for n, view in frame.ranks.items() if n != rank})


@pytest.mark.torch
@pytest.mark.long
def test_torchs_analyzer_gives_its_verdict(tmp_path: Path) -> None:
    late = open_paths([SLEEPING])
    frames = {"late": late, "mismatch": open_paths([MISMATCH]), "absent": without_rank(late, 3)}
    folders = []
    for name, frame in frames.items():
        folders.append(str(tmp_path / name))
        write_export(tmp_path / name, frame, "flightrecorder", over=False)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ANALYZE, *folders],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    said = {part.split("\n")[0].rpartition("/")[2]: part for part in done.stderr.split("== ")[1:]}
    assert "Not all ranks joining collective, sequence number: 8" in said["late"]
    assert "missing ranks: {2}" in said["late"]
    assert "sequence number: 8 has errors" in said["mismatch"]
    assert "Culprit rank 2; Error type: COLLECTIVE_TYPE_MISMATCH" in said["mismatch"]
    assert "Missing dump files from ranks {3}" in said["absent"]


def test_dumps_are_read_back_with_the_same_verdict(tmp_path: Path) -> None:
    write_export(tmp_path / "dumps", open_paths([MISMATCH]), "flightrecorder",
                 over=False)  # fmt: skip
    (verdict,) = open_paths([tmp_path / "dumps"]).verdicts
    assert (verdict.kind, verdict.culprits or verdict.parties[-1]) == ("mismatch", (2,))


def entries(folder: Path, files: dict[str, bytes], rank: int) -> list[Any]:
    path = folder / f"{PREFIX}{rank}"
    path.write_bytes(files[path.name])
    found: list[Any] = next(read_dumps(path)).values["entries"]
    return found


def test_what_a_record_has_lost_is_not_taken_for_not_entered(tmp_path: Path) -> None:
    """Of rank 1 only the newest ops are left: the others' older ones are left out."""
    frame = open_paths([SLEEPING])
    view = frame.ranks[0]
    group = next(iter(view.groups))
    made = {
        rank: wire.History(
            (wire.Signature("all_reduce"),), (),
            packed(HistoryRow(n, group, n, 1, 0, n, 5, 1) for n in range(first, 9)),
        )
        for rank, first in ((0, 1), (1, 5), (3, 1))
    }  # fmt: skip
    ended = {
        rank: replace(one, pending=(), blocked_on=None, snapshot=None, group_progress={})
        for rank, one in frame.ranks.items() if rank != 2
    }  # fmt: skip
    responses = {rank: wire.HistoryResponse(0, "", 0, one) for rank, one in made.items()}
    files = flight_dumps(collected(replace(frame, ranks=ended), responses, ()))
    for rank in (0, 1, 3):
        assert [one["collective_seq_id"] for one in entries(tmp_path, files, rank)] == [5, 6, 7, 8]
        assert [one["record_id"] for one in entries(tmp_path, files, rank)] == [0, 1, 2, 3]


def test_ops_of_unknown_kind_are_left_out_everywhere(tmp_path: Path) -> None:
    frame = open_paths([SLEEPING])
    one = frame.ranks[0]
    group = next(iter(one.groups))
    strange = wire.Op(1, group, 8, wire.Signature("fused_thing"), None, 1, 2)
    odd = replace(one, pending=(), blocked_on=None, group_progress={},
                  snapshot=wire.Snapshot(one.key, 1, ops=(strange,)))  # fmt: skip
    files = flight_dumps(replace(frame, ranks={**frame.ranks, 0: odd}))
    for rank in frame.ranks:
        assert 8 not in [entry["collective_seq_id"] for entry in entries(tmp_path, files, rank)]
    assert b"2 ops of unknown kind" in files[NOTES]  # one was there
