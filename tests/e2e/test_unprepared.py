"""Jobs that nobody prepared: frtop starts an agent, finds them, and names the culprit.

What it says of each fault without the recorder, `make zoo ZOO=--unprepared` shows.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from e2e.conftest import JOBS, frtop
from frtop_tui.connect.agent_start import start_agent
from frtop_tui.connect.live import LiveSource
from frtop_tui.files import capture
from frtop_tui.files.blackbox import load
from frtop_tui.job.naming import RankPid
from waiting import wait_for

RANKS = 3


class Job:
    """A running job; `pids` by rank, once all have trained for a while."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        files = [folder / f"rank{rank}" for rank in range(RANKS)]
        wait_for(lambda: all(one.exists() and one.read_text() for one in files), "it trains", 90)
        self.pids = [int(one.read_text()) for one in files]

    def diagnose(self, *, prepared: bool = False) -> dict[str, Any]:
        """Other jobs of this user may run on this host: this one is chosen by its rank 0."""
        said = frtop("diagnose", "--json", "--pid", str(self.pids[0]))
        assert said.stdout, said.stderr
        document: dict[str, Any] = json.loads(said.stdout)
        seen = {one["pid"] for one in document["ranks"].values()} - {None}
        # A verdict may come before the last rank was looked at for the first time.
        assert self.pids[0] in seen
        assert seen <= set(self.pids)
        assert document["job"]["prepared"] is prepared, said.stdout
        return document


class Launcher:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, what: str, *, spawn: bool = False) -> Job:
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
        process = subprocess.Popen(
            [sys.executable, *([] if spawn else torchrun), str(JOBS / "unprepared.py"),
             str(self.folder), what, *(["spawn"] if spawn else [])],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            env={name: value for name, value in os.environ.items() if "FRTOP" not in name}
            | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        self.started.append(process)
        return Job(self.folder, process)

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                tree = psutil.Process(process.pid).children(recursive=True)
                for one in tree:
                    with suppress(psutil.NoSuchProcess):
                        one.kill()
                process.kill()
                psutil.wait_procs(tree, 10)
            process.wait()


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    one = Launcher(tmp_path)
    yield one
    one.close()


@pytest.fixture(autouse=True)
def home(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes a folder without agent and key. The agent leaves 8 s after the last request."""
    monkeypatch.delenv("FRTOP_AGENT_WITH")
    monkeypatch.delenv("FRTOP_UNPREPARED")
    monkeypatch.setenv("FRTOP_AGENT_LINGER", "0")
    return home


def verdict_of(document: dict[str, Any]) -> dict[str, Any]:
    assert document["verdicts"], json.dumps(document, indent=1)
    verdict: dict[str, Any] = document["verdicts"][0]
    return verdict


@pytest.mark.long
def test_ranks_of_mp_spawn_are_known_by_their_c10d_state(launcher: Launcher) -> None:
    job = launcher.start("sleeps", spawn=True)
    verdict = verdict_of(document := job.diagnose())
    assert (verdict["kind"], verdict["culprits"]) == ("not_entered", [1]), document
    assert {int(rank): one["pid"] for rank, one in document["ranks"].items()} == dict(
        enumerate(job.pids)
    )


@pytest.mark.long  # the zoo has an unprepared job in every run, tests/agent boxes of such jobs
def test_different_ops_are_a_mismatch_also_once_the_job_was_killed(
    launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boxes = tmp_path / "boxes"
    monkeypatch.setenv("FRTOP_BOXES", str(boxes))
    job = launcher.start("mismatch")
    assert start_agent() is None
    source = LiveSource(job=RankPid(job.pids[0]))
    try:
        wait_for(
            lambda: [one.culprits for one in source.frame().verdicts] == [(1,)], "a verdict", 60
        )
        (verdict,) = source.frame().verdicts
        assert (verdict.kind, verdict.op and verdict.op.number) == ("mismatch", 31)
        begin_ns = source.frame().now_ns
        wait_for(lambda: source.frame().now_ns > begin_ns + 1_500_000_000, "somebody watches")
        for pid in job.pids:
            os.kill(pid, signal.SIGKILL)
        found = wait_for(lambda: [p for p in boxes.glob("*.box") if load(p).box.complete], "a box")
    finally:
        source.close()
    said = frtop("diagnose", "--json", *map(str, found))
    told = verdict_of(document := json.loads(said.stdout))
    assert (told["kind"], told["culprits"]) == ("mismatch", [1]), document
    assert any("seen from outside from " in text for text in document["recorded"]["notes"])


@pytest.mark.long
def test_an_op_that_differed_is_found_in_what_torch_has_recorded(
    launcher: Launcher, tmp_path: Path
) -> None:
    job = launcher.start("differs")
    verdict = verdict_of(document := job.diagnose())
    assert (verdict["kind"], verdict["culprits"], verdict["confidence"]) == (
        "mismatch", [1], "confirmed",
    ), document  # fmt: skip
    assert verdict["op"] == {"number": 21, "kind": "all_reduce"}
    assert document["health"] == "mismatch"
    # A capture holds it, too.
    path = tmp_path / "past.cap"
    said = frtop("capture", "--pid", str(job.pids[0]), "-o", str(path))
    assert path.exists(), said.stderr
    ranks = capture.read(path).ranks
    assert all(view.snapshot is not None and view.snapshot.ops for view in ranks.values())
    notes = {view.snapshot.ops_note for view in ranks.values() if view.snapshot is not None}
    assert all(note.startswith("Flight Recorder: ") for note in notes)
    (tmp_path / "stop").touch()
    assert job.process.wait(60) == 0


@pytest.mark.long
def test_a_recorder_that_starts_late_takes_over(
    home: Path, launcher: Launcher, tmp_path: Path
) -> None:
    job = launcher.start("starts late")
    run_id = job.diagnose()["job"]["run_id"]
    draft = tmp_path / "draft"
    draft.write_text(str(home))
    draft.rename(tmp_path / "home")
    wait_for(lambda: len(list(home.glob("*.ring"))) == RANKS, "recorders start", 30)
    document = job.diagnose(prepared=True)
    assert {one["prepared"] for one in document["ranks"].values()} == {True}
    assert document["coverage"]["expected"] == RANKS
    assert document["job"]["run_id"] == run_id
    assert run_id not in [one["run_id"] for one in document["other_jobs"]]
    (tmp_path / "stop").touch()
    assert job.process.wait(60) == 0
