"""The commands as a user types them, on real jobs."""

from __future__ import annotations

import json
import re
from pathlib import Path

from e2e.conftest import Launch, eventually, frtop


def rings(home: Path) -> list[Path]:
    return list(home.glob("*.ring"))


def test_run_then_diagnose_json(home: Path, torchrun: Launch) -> None:
    job = torchrun("orderly.py", "25")
    eventually(lambda: (home / "agent.json").exists() and len(rings(home)) == 2, 60, "two rings")
    said = frtop("diagnose", "--json")
    assert said.returncode == 0, said.stdout + said.stderr
    document = json.loads(said.stdout)
    assert document["verdicts"] == []
    assert sorted(document["ranks"]) == ["0", "1"]
    assert document["coverage"]["heard"] == document["coverage"]["expected"] == 2
    assert document["job"]["world_size"] == 2
    output, _ = job.communicate(timeout=60)
    assert job.returncode == 0, output
    said = frtop("diagnose")
    assert said.returncode == 0, said.stdout + said.stderr
    assert "ENDED" in said.stdout


def test_sizes_that_differ_are_a_mismatch_even_after_gloo_aborted(
    home: Path, torchrun: Launch
) -> None:
    job = torchrun("size_mismatch.py", ranks=3)
    output, _ = job.communicate(timeout=90)
    assert job.returncode != 0, output
    said = frtop("diagnose", "--json")
    assert said.returncode == 3, said.stdout + said.stderr + output
    document = json.loads(said.stdout)
    first = document["verdicts"][0]
    assert first["kind"] == "mismatch"
    assert first["culprits"] == [1]
    assert first["op"] == {"number": 4, "kind": "all_reduce"}
    assert re.search(r"1025.*1024|1024.*1025", first["why"]["text"] + str(first["evidence"]))
    # That a rank was aborted by gloo is in the rings that it left.
    assert all(rank["posture"] == "dead" for rank in document["ranks"].values())


def test_without_any_agent_the_next_step_is_named(home: Path) -> None:
    said = frtop("diagnose")
    assert said.returncode == 1
    assert "no agent" in said.stderr
    assert "frtop run -- torchrun" in said.stderr
