"""`frtop profile` on a real job: torch's profiler in four ranks, as one trace."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from e2e.conftest import Launch, frtop, wait_for_ranks
from files.perfetto import LOST, ask_perfetto
from files.trace_events import problems
from waiting import wait_for

pytestmark = pytest.mark.job


@pytest.mark.long
def test_a_profile_of_four_ranks_opens_in_perfetto(
    home: Path, torchrun: Launch, tmp_path: Path
) -> None:
    file = tmp_path / "out.json.gz"
    job = torchrun("trains.py", str(tmp_path), ranks=4)
    wait_for_ranks(home, 4, "sock")
    wait_for(lambda: "HEALTHY" in frtop("diagnose").stdout, "ranks in a group")
    order = ("--rank", "0-3", "--steps", "3", "--shapes", "--execution-trace", "--memory", "-o")
    said = frtop("profile", *order, str(file))
    assert (said.returncode, "--yes" in said.stderr) == (2, True)  # nobody was asked
    said = frtop("profile", "--yes", *order, str(file))
    assert said.returncode == 0, said.stdout + said.stderr
    assert not list(tmp_path.glob(".frtop*"))
    assert not list(home.glob("*.trace.json"))
    (tmp_path / "end").touch()
    assert "CPU                0-3           -  +" in said.stderr
    document = json.loads(gzip.decompress(file.read_bytes()))
    assert problems(document) == []
    for rank in range(4):
        found = json.loads((tmp_path / f"out.rank{rank}.execution.json").read_bytes())
        assert found["schema"].startswith("1.")
        assert {"id", "name", "ctrl_deps", "inputs", "outputs", "attrs"} <= found["nodes"][0].keys()
        assert any(node["name"] == "c10d::allreduce_" for node in found["nodes"])
    events = document["traceEvents"]
    numbers = [
        (event["pid"], event["args"].get("frtop number"))
        for event in events
        if event["name"] == "c10d::allreduce_"
    ]
    found = Counter(number for _, number in numbers)
    assert found.pop(None, 0) <= 4  # of each rank the op at which its profile ended
    assert len({pid for pid, _ in numbers}) == 4
    assert sum(count == 4 for count in found.values()) > len(found) / 2  # all ranks have it
    output, _ = job.communicate(timeout=60)
    assert job.returncode == 0, output
    slices = sum(event["ph"] == "X" for event in events)
    arrows = sum(event["ph"] in "tf" for event in events)
    blocks = [event for event in events if event["name"] == "[memory]"]
    assert {event["args"]["Total Reserved"] for event in blocks} == {0}
    lost, shown, drawn, counted = ask_perfetto(
        file,
        LOST,
        "select count(*) from slice",
        "select count(*) from flow",
        "select count(*) from counter c join process_counter_track t on c.track_id = t.id"
        " where t.name = 'CPU memory allocated'",
    )
    assert lost == []
    assert shown[0] >= slices
    assert drawn == [arrows]
    assert counted == [len(blocks)]
    assert blocks
