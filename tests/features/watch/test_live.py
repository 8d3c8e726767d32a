"""`frtop watch` on real jobs that hang: captured, told, not repeated, and ended if it is to be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from e2e.conftest import Launch, family, frtop
from e2e.test_unprepared import Launcher
from frtop_tui.features.watch.history import FILE, Culprit, CulpritHistory
from waiting import wait_for

pytestmark = pytest.mark.job
Event = dict[str, Any]


class Watch:
    """A watcher as a service starts it; its lines as they come."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.out = folder / f"out{time.monotonic_ns()}"
        with self.out.open("w") as out, (folder / "err").open("a") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "frtop_tui", "watch", "--state", str(folder / "state"),
                 *options],
                stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
            )  # fmt: skip

    def events(self, name: str = "") -> list[Event]:
        lines = [json.loads(line) for line in self.out.read_text().splitlines()]
        return [one for one in lines if name in ("", one["event"])]

    def wait(self, name: str, seconds: float = 60.0) -> Event:
        return wait_for(lambda: self.events(name), lambda: f"{name}: {self.events()}", seconds)[0]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        self.process.terminate()
        assert self.process.wait(40) == 0


@pytest.fixture
def watch(tmp_path: Path, home: Path) -> Iterator[Callable[..., Watch]]:
    started: list[Watch] = []

    def start(*options: str) -> Watch:
        started.append(Watch(tmp_path, *options))
        return started[-1]

    yield start
    for one in started:
        one.kill()


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    one = Launcher(tmp_path)
    yield one
    one.close()


def test_a_hang_is_told_by_a_watcher_that_was_restarted_and_the_job_ended_on_demand(
    home: Path, launcher: Launcher, watch: Callable[..., Watch], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.delenv("FRTOP_AGENT_WITH")
    monkeypatch.delenv("FRTOP_UNPREPARED")
    monkeypatch.setenv("FRTOP_AGENT_LINGER", "0")
    job = launcher.start("sleeps")
    told = tmp_path / "told"
    options = ("--job", address_of(job.pids[0]), "--exec", f"cp /dev/stdin {told}", "--kill")
    first = watch(*options)
    wait_for(lambda: first.events("suspect") or first.events("confirmed"), "a verdict", 60)
    # It says the line first: one killed in between says it twice rather than never.
    wait_for(lambda: list((tmp_path / "state").glob("job-*.json")), "its successor can know")
    first.kill()
    says_what_was_before(options[1], tmp_path, monkeypatch)

    second = watch(*options)
    killed = second.wait("killed")
    assert killed["ok"], killed
    assert set(killed["what"]) == set(job.pids)
    assert second.events("command")[0]["ok"]
    assert job.process.wait(30) != 0
    (confirmed,) = first.events("confirmed") + second.events("confirmed")
    assert confirmed["verdict"]["culprits"] == [1]
    assert confirmed["culprits"][0]["pid"] == job.pids[1]
    # On a full host a host that does not report may be suspected first.
    suspected = [one["cause"] for one in first.events("suspect") + second.events("suspect")]
    assert len(suspected) == len(set(suspected))
    assert Path(json.loads(told.read_text())["capture"]).stat().st_size > 1000
    assert confirmed["verdict"]["op"]["number"] == 31
    second.stop()
    # Its agent, which nobody has prepared, leaves with the last that asked, and leaves nothing.
    wait_for(lambda: not family(home), "agent and children leave")
    assert not [*home.glob("agent-*.json"), *home.glob("*.ring")]
    (row,) = CulpritHistory(tmp_path / "state" / FILE).since(0)
    assert (row.rank, row.cause) == (1, "sleeping")


def says_what_was_before(job: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`frtop diagnose` knows the host from runs before this one."""
    host = json.loads(frtop("jobs", "--json").stdout)["hosts"][0]["name"]
    (folder / "home" / "frtop").mkdir(parents=True)
    CulpritHistory(folder / "home" / "frtop" / FILE).add([
        Culprit(time.time() - 86400, run, "old.py", host, 5, "5", "", "stuck", "device", "device")
        for run in "abc"
    ])  # fmt: skip
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "home"))
    before = f"{host} gpu5 was the culprit 3 times in 14 days before this run"
    # On a full host it may take a second look until the verdict names a culprit.
    wait_for(
        lambda: [before] == json.loads(frtop("diagnose", "--job", job, "--json").stdout)["before"],
        "the verdict", 60,
    )  # fmt: skip
    assert f"note  {before}: `frtop history`" in frtop("diagnose", "--job", job).stdout
    monkeypatch.delenv("XDG_STATE_HOME")


def address_of(pid: int) -> str:
    """The job by its address: others of this user may run on this host, and one is ended here."""
    variables = psutil.Process(pid).environ()
    return f"{variables['MASTER_ADDR']}:{variables['MASTER_PORT']}"


@pytest.mark.long
@pytest.mark.parametrize("prepared", [True, False])
def test_the_capture_is_complete_before_a_timeout_of_a_minute(
    prepared: bool, home: Path, torchrun: Launch, watch: Callable[..., Watch],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if not prepared:
        monkeypatch.delenv("FRTOP_UNPREPARED")
        monkeypatch.setenv("FRTOP_OFF", "1")
    one = watch("--exec", "true", "--job", "times_out.py")
    job = torchrun("times_out.py")
    assert job.stdout is not None
    line = next(line for line in job.stdout if line.startswith("hangs "))
    hung_s = float(line.split()[1])
    done = one.wait("command", 55)
    assert one.events("confirmed")[0]["job"]["prepared"] is prepared
    took_s = time.time() - hung_s
    assert job.poll() is None
    captured = [event for event in one.events("captured") if event["ok"]]
    assert captured, one.events()
    assert took_s < 45, took_s
    assert done["ok"]
    one.kill()
    again = watch("--exec", "true", "--job", "times_out.py")
    again.wait("watching")
    job.communicate(timeout=90)
    assert job.returncode != 0
    again.stop()
    assert not again.events("confirmed") + again.events("command")  # it was delivered
    said = frtop("diagnose", "--json", captured[-1]["path"])
    assert json.loads(said.stdout)["verdicts"][0]["culprits"] == [1]
    assert os.path.getsize(captured[-1]["path"]) > 1000  # noqa: PTH202
