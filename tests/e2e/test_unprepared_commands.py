"""What the commands say of a real job that nobody prepared: one job, since its start takes long."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.conftest import frtop
from e2e.test_unprepared import RANKS, Launcher
from waiting import wait_for


@pytest.fixture
def launcher(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Launcher]:
    monkeypatch.delenv("FRTOP_UNPREPARED")
    one = Launcher(tmp_path)
    yield one
    one.close()


@pytest.mark.long
def test_jobs_capture_and_diagnose_say_that_it_is_seen_from_outside(
    launcher: Launcher, tmp_path: Path
) -> None:
    pids = launcher.start("sleeps").pids
    job = listed(pids)
    assert (job["name"], job["live"], job["prepared"]) == ("unprepared.py", True, False)
    assert (job["ranks"], job["world_size"], job["hosts"]) == (RANKS, RANKS, 1)
    assert job["in_the_way"] == []
    said = frtop("jobs")
    assert said.returncode == 0, said.stderr
    assert "no recorder: seen from outside" in said.stdout

    path = tmp_path / "plain.cap"
    said = frtop("capture", "--pid", str(pids[0]), "-o", str(path))
    assert said.returncode == 0, said.stdout + said.stderr
    ranks = f"ranks 0-{RANKS - 1}"
    assert f"no tensors of {ranks}: they have no recorder" in said.stdout
    said = frtop("diagnose", str(path))
    assert said.returncode == 3, said.stdout + said.stderr
    assert ": HUNG for at least " in said.stdout
    assert "note  not prepared: seen from outside" in said.stdout
    found = json.loads(frtop("diagnose", "--json", str(path)).stdout)
    assert found["job"]["prepared"] is False
    assert found["verdicts"][0]["culprits"] == [1]
    assert found["ranks"]["0"]["blocked_on"]["dated"] is False

    said = frtop("diagnose", "--pid", "1")
    assert said.returncode == 1
    assert "no rank has pid 1: there is " in said.stderr
    said = frtop("tensors", "--rank", "0", "--job", job["call"])
    assert said.returncode == 1
    assert f"rank 0 (process {pids[0]}) has no recorder" in said.stderr

    said = frtop("stacks", "--native", "--rank", "0", "--pid", str(pids[0]))
    assert said.returncode == 2
    assert "there is no terminal to ask on" in said.stderr
    # On a loaded host the tool may be ended after 5 s: the rank runs on all the same.
    shown = wait_for(lambda: native_stacks(pids[0]), "native stacks of rank 0", 90)
    assert "C c10d::Work::wait" in shown
    said = frtop("stacks", "--pid", str(pids[0]))
    assert said.returncode == 0, said.stderr
    assert "C " not in said.stdout


def native_stacks(pid: int) -> str:
    said = frtop("stacks", "--native", "--yes", "--rank", "0", "--pid", str(pid))
    assert "in which rank 0" in said.stderr
    assert said.returncode == 0 or "had stood still" in said.stdout, said.stdout + said.stderr
    return said.stdout if said.returncode == 0 else ""


def listed(pids: list[int]) -> dict[str, Any]:
    """The job as `frtop jobs` lists it: other jobs of this user may run on this host."""
    call = json.loads(frtop("diagnose", "--json", "--pid", str(pids[0])).stdout)["job"]["call"]

    def find() -> dict[str, Any] | None:
        jobs = json.loads(frtop("jobs", "--json").stdout)["jobs"]
        return next((one for one in jobs if one["call"] == call and one["ranks"] == RANKS), None)

    return wait_for(find, "frtop jobs lists all ranks", 60)
