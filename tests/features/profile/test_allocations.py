"""torch's `[memory]` events as figures by device and as lanes, whatever a file says."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from features.profile.test_merged import merged, torch_trace, unnamed, write
from files.perfetto import LOST, ask_perfetto
from files.trace_events import problems
from frtop_tui.cli import main
from frtop_tui.features.profile.allocations import MOST_DEVICES, Allocations
from frtop_tui.features.profile.model import RankAllocations
from frtop_tui.features.profile.reader import read_allocations
from frtop_tui.features.profile.torch_lanes import RankTrace
from json_schemas import read_document
from screens.scenes import hung

M = 1 << 20
Event = dict[str, Any]


def block(at: float, allocated: int, change: int, reserved: int = 0, *, kind: int = 0) -> Event:
    """As torch 2.13 writes it; of a CPU the device has no number."""
    args = {"Total Reserved": reserved, "Total Allocated": allocated, "Bytes": change,
            "Device Id": 0 if kind else -1, "Device Type": kind, "Addr": 7}  # fmt: skip
    return {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 1,
            "tid": 1, "ts": at, "args": args}  # fmt: skip


def out_of_memory(change: int, kind: int) -> Event:
    return {**block(0, 0, change, kind=kind), "name": "[OutOfMemory]"}


def read(*events: Event) -> Allocations:
    found = Allocations(3)
    for event in events:
        raw = {name: msgspec.Raw(json.dumps(value)) for name, value in event.items()}
        found.add(bytes(raw["name"]), raw)
    return found


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param([], [], id="none"),
        pytest.param(
            # An earlier profile has left 100 in torch's total.
            [block(1, 140, 40), block(2, 200, 60), block(3, 140, -60)],
            [RankAllocations(3, "CPU", 0, 40, 100)],
            id="the CPU's total begins with this profile",
        ),
        pytest.param(
            # A mapped file says 0 and its size.
            [block(1, 40, 40), block(2, 0, 500, 500), block(3, 0, -500), block(4, 10, -30)],
            [RankAllocations(3, "CPU", 0, 10, 540)],
            id="a mapped file is one more block",
        ),
        pytest.param(
            [block(5, 700, 200, 4000, kind=1), block(1, 900, 100, 2000, kind=1),
             block(3, 500, -400, 4000, kind=1)],
            [RankAllocations(3, "cuda:0", 800, 700, 900, 4000)],
            id="of a device the totals count, by time",
        ),
        pytest.param(
            [block(1, 300, -500, 900, kind=1)],
            [RankAllocations(3, "cuda:0", 800, 300, 800, 900)],
            id="what is there at the start may be the peak",
        ),
        pytest.param(
            [block(1, 1, 1, 1, kind=12), out_of_memory(1 << 60, 12), out_of_memory(9, 0)],
            [RankAllocations(3, "CPU", 0, 0, 0, 0, 1), RankAllocations(3, "xpu:0", 0, 1, 1, 1, 1)],
            id="no memory was left",
        ),
        pytest.param(
            [block(1, 5, 5, kind=77)],
            [RankAllocations(3, "device type 77:0", 0, 5, 5)],
            id="a device that nobody knows",
        ),
    ],
)  # fmt: skip
def test_figures_by_device(events: list[Event], expected: list[RankAllocations]) -> None:
    assert read(*events).figures() == expected


@pytest.mark.parametrize(
    "wrong",
    [
        {"args": {}},
        {"args": []},
        {"ts": "soon"},
        {"args": {**block(1, 1, 1)["args"], "Bytes": 1 << 70}},
        {"args": {**block(1, 1, 1)["args"], "Total Allocated": -1}},
        {"args": {**block(1, 1, 1)["args"], "Device Type": "CPU"}},
    ],
)
def test_an_event_of_another_shape_is_left_out(wrong: Event) -> None:
    found = read({**block(1, 9, 9), **wrong}, block(2, 1, 1))
    assert found.figures() == [RankAllocations(3, "CPU", 0, 1, 1)]
    assert len([*found.counters()]) == 1


def test_devices_are_bounded() -> None:
    events = [block(1, 1, 1, kind=kind) for kind in range(127)]
    assert len(read(*events).figures()) == MOST_DEVICES


def test_a_profile_is_read_later(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = hung()
    plain, traced = torch_trace(tmp_path, frame, 0), torch_trace(tmp_path, frame, 1)
    traced = with_blocks(tmp_path, traced, block(4, 3 * M, 3 * M, 4 * M, kind=1))
    without, _, _ = write(tmp_path / "without.json.gz", [plain], frame)
    path, _, contents = write(tmp_path / "out.json.gz", [plain, traced], frame)
    assert read_allocations(path) == contents.allocations
    assert (read_allocations(path, [0]), read_allocations(without)) == ([], [])
    assert main(["statistics", "--by", "memory", str(path)]) == 0
    assert "cuda:0 1 0 B 3.15 MB 3.15 MB 4.19 MB" in " ".join(capsys.readouterr().out.split())
    assert main(["statistics", "--by", "memory", "--json", str(path)]) == 0
    rows = read_document(capsys.readouterr().out, "frtop-allocations-1")["rows"]
    assert rows[0]["reserved"] == 4 * M
    assert main(["statistics", "--by", "memory", str(without)]) == 1
    assert "was recorded without allocations" in capsys.readouterr().err
    assert main(["statistics", "--by", "memory"]) == 2


def with_blocks(folder: Path, trace: RankTrace, *blocks: Event) -> RankTrace:
    """The trace with events so many µs after its first op."""
    file = trace.files["trace"]
    document = json.loads(os.pread(file.fileno(), file.size, 0))
    op = document["traceEvents"][1]
    place = {"pid": op["pid"], "tid": op["tid"]}
    document["traceEvents"] += [{**one, **place, "ts": op["ts"] + one["ts"]} for one in blocks]
    rewritten = {"trace": unnamed(folder, json.dumps(document))}
    return RankTrace(trace.rank, trace.host, rewritten, trace.clocks)


def test_perfetto_shows_a_lane_for_each_device(tmp_path: Path) -> None:
    frame = hung()
    blocks = (block(4, 3 * M, 3 * M), block(5, M, -2 * M), block(6, 8 * M, 4 * M, 20 * M, kind=1))
    traces = [with_blocks(tmp_path, torch_trace(tmp_path, frame, 0), *blocks)]
    path, _, contents = write(tmp_path / "out.json.gz", traces, frame)
    assert contents.allocations == [
        RankAllocations(0, "CPU", 0, M, 3 * M),
        RankAllocations(0, "cuda:0", 4 * M, 8 * M, 8 * M, 20 * M),
    ]
    written = merged(path)
    assert problems(written) == []
    assert [one["peak"] for one in written["otherData"]["ranks"]["0"]["allocations"]] == [
        3 * M, 8 * M,
    ]  # fmt: skip
    lost, *lanes = ask_perfetto(
        path,
        LOST,
        "select group_concat(value, ' ') from counter c join process_counter_track t"
        " on c.track_id = t.id where t.name like 'CPU memory%'",
        "select group_concat(name, ', ') from (select distinct name from process_counter_track"
        " order by name)",
    )
    assert lost == []
    assert lanes == [
        [f"{3 * M}.0 {M}.0"],
        ["CPU memory allocated, cuda:0 memory allocated, cuda:0 memory reserved"],
    ]
