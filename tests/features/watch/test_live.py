"""`frtop watch` on real jobs that hang: captured, told, not repeated, and ended if it is to be."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from e2e.conftest import Launch, frtop
from features.warm_job import told_to_hang
from frtop_tui.features.watch.history import FILE, CulpritHistory
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


def test_a_hang_is_told_by_a_watcher_that_was_restarted_and_the_job_ended_on_demand(
    tmp_path: Path,
) -> None:
    told = tmp_path / "told"
    with told_to_hang(tmp_path) as ranks, ExitStack() as stack:

        def watch() -> Watch:
            one = Watch(tmp_path, "--exec", f"cp /dev/stdin {told}", "--kill")
            stack.callback(one.kill)
            return one

        first = watch()
        first.wait("watching")
        (tmp_path / "hang").touch()  # not before: a rank without a history is given 30 s
        wait_for(lambda: first.events("suspect") or first.events("confirmed"), "a verdict")
        # It says the line first: one killed in between says it twice rather than never.
        wait_for(lambda: list((tmp_path / "state").glob("job-*.json")), "its successor can know")
        first.kill()
        second = watch()
        killed = second.wait("killed")
        assert killed["ok"], killed
        assert set(killed["what"]) == {rank.pid for rank in ranks}
        assert second.events("command")[0]["ok"]
        assert all(rank.wait(30) != 0 for rank in ranks)
        second.stop()
    events = first.events() + second.events()
    (confirmed,) = (one for one in events if one["event"] == "confirmed")
    assert confirmed["verdict"]["culprits"] == [1]
    assert confirmed["culprits"][0]["pid"] == ranks[1].pid
    # On a full host a host that does not report may be suspected first.
    suspected = [one["cause"] for one in events if one["event"] == "suspect"]
    assert len(suspected) == len(set(suspected))
    assert Path(json.loads(told.read_text())["capture"]).stat().st_size > 1000
    (row,) = CulpritHistory(tmp_path / "state" / FILE).since(0)
    assert (row.rank, row.host) == (1, socket.gethostname())


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
