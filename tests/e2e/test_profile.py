"""`frtop profile` on a real job: torch's profiler in two ranks, as one trace."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from e2e.conftest import Launch, frtop
from waiting import wait_for


@pytest.mark.long
def test_two_ranks_are_profiled_into_one_trace(
    home: Path, torchrun: Launch, tmp_path: Path
) -> None:
    end, file = tmp_path / "end", tmp_path / "out.json.gz"
    job = torchrun("orderly.py", str(end))
    wait_for(lambda: any(home.glob("agent-*.json")) and len(list(home.glob("*.sock"))) == 2, "two")
    wait_for(lambda: "HEALTHY" in frtop("diagnose").stdout, "ranks in a group")
    said = frtop("profile", "--job", "orderly.py", "--seconds", "1", "-o", str(file))
    assert (said.returncode, "--yes" in said.stderr) == (2, True)  # nobody was asked
    said = frtop("profile", "--job", "orderly.py", "--seconds", "1", "--yes", "-o", str(file))
    assert said.returncode == 0, said.stdout + said.stderr
    assert not list(tmp_path.glob(".frtop*"))
    assert not list(home.glob("*.trace.json"))
    events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert {f"rank {rank}" for rank in (0, 1)} == {
        name.partition(" (")[0] for name in names if name.endswith(": torch")
    }
    numbers = [
        (event["pid"], event["args"].get("frtop number"))
        for event in events
        if event["name"] == "c10d::allreduce_"
    ]
    found = Counter(number for _, number in numbers)
    assert found.pop(None, 0) <= 2  # of each rank the op at which its profile ended
    assert len({pid for pid, _ in numbers}) == 2
    assert sum(count == 2 for count in found.values()) > len(found) / 2  # both ranks have it
    end.touch()
    output, _ = job.communicate(timeout=60)
    assert job.returncode == 0, output
