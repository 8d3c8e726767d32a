"""`frtop profile` by operators that go away, and through a shell."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from e2e.conftest import JOBS, frtop, wait_for_ranks
from features.profile.test_merged import merged
from free_port import free_port
from waiting import wait_for

pytestmark = [pytest.mark.job, pytest.mark.long]
START = "trains.py"
MINUTE = ("--rank", "0,2", "--seconds", "60")
Start = Callable[..., "list[subprocess.Popen[bytes]]"]


@pytest.fixture
def start(home: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts ranks one by one: nothing ends the others when one of them is killed."""
    started: list[subprocess.Popen[bytes]] = []

    def launch(ranks: int, *arguments: str, **more: str) -> list[subprocess.Popen[bytes]]:
        base = {**os.environ, "OMP_NUM_THREADS": "1", "WORLD_SIZE": str(ranks), **more}
        base |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        for rank in range(ranks):
            command = [sys.executable, "-W", "ignore", str(JOBS / START), str(tmp_path), *arguments]
            with (tmp_path / f"err-{rank}").open("wb") as errors:
                started.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "frtop_tui", "run", "--", *command],
                        env={**base, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                        stderr=errors,
                    )
                )
        wait_for_ranks(home, ranks, "sock")
        return started

    yield launch
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A folder for results: nothing else lies in it."""
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def profile(*arguments: str) -> subprocess.CompletedProcess[str]:
    return frtop("profile", "--job", START, "--yes", *arguments)


@contextmanager
def operator(
    until: Callable[[], bool], what: str, *arguments: str, errors: int = subprocess.PIPE
) -> Iterator[subprocess.Popen[str]]:
    """Profiles beside the test, which goes on when `until` holds, and ends with the block."""
    with subprocess.Popen(
        [sys.executable, "-m", "frtop_tui", "profile", "--job", START, "--yes", *arguments],
        stdout=subprocess.PIPE, stderr=errors, text=True,
    ) as process:  # fmt: skip
        try:
            wait_for(until, what, 30)
            yield process
        finally:
            process.kill()


def nothing_is_left(home: Path, folder: Path) -> bool:
    names = [path.name for path in (*home.iterdir(), *folder.iterdir())]
    return not any(".trace.json" in name or ".execution.json" in name or name.startswith(".")
                   for name in names)  # fmt: skip


def test_an_interrupt_writes_what_is_complete_and_a_second_one_nothing(
    home: Path, start: Start, tmp_path: Path, out: Path
) -> None:
    ranks = start(3, "alone")
    assert profile("--steps", "1", "-o", str(out / "all.json.gz")).returncode == 0
    ranks[1].send_signal(signal.SIGSTOP)
    file = out / "two.json.gz"
    said = Terminal()
    order = ("--rank", "0-2", "--steps", "2", "--memory", "-o", str(file))
    with operator(
        lambda: "2 done" in said.text(), "two ranks are fetched", *order, errors=said.theirs
    ) as one:
        one.send_signal(signal.SIGINT)
        assert one.wait(60) == 1, said.text()
    errors = " ".join(said.text().split())  # lines break where the terminal ends
    assert "ranks that are complete are written" in errors
    assert "rank 1: " in errors
    assert "the order was ended before it was done" in errors
    assert "torch's allocator" in errors
    assert sorted(merged(file)["otherData"]["ranks"]) == ["0", "2"]
    assert [one["device"] for one in merged(file)["otherData"]["ranks"]["2"]["allocations"]] == [
        "CPU"
    ]

    # Where no rank is complete the first one ends it.
    records = (tmp_path / "profiled-2").exists
    with operator(records, "rank 2 records", *MINUTE, "-o", str(out / "none.json.gz")) as one:
        one.send_signal(signal.SIGINT)
        assert one.wait(30) == 130
    ranks[1].send_signal(signal.SIGCONT)
    wait_for(lambda: nothing_is_left(home, out), "no file is left", 40)
    assert sorted(path.name for path in out.iterdir()) == ["all.json.gz", "two.json.gz"]


class Terminal:
    """One that a program writes to: only there it says how far it is."""

    def __init__(self) -> None:
        self._ours, self.theirs = os.openpty()
        os.set_blocking(self._ours, False)
        self._said = b""

    def text(self) -> str:
        """All that was written so far."""
        with suppress(BlockingIOError):
            while data := os.read(self._ours, 65536):
                self._said += data
        return self._said.decode()


def test_through_a_shell_and_where_agents_are_read_only(
    home: Path, start: Start, tmp_path: Path
) -> None:
    start(2, "alone", FRTOP_READ_ONLY="1")
    remote = tmp_path / "remote"
    remote.write_text(f"exec env -i PATH='{os.environ['PATH']}' FRTOP_DIR='{home}' sh\n")
    shell = ("--via", f"sh {remote} {{host}}", "--ssh", "node0")
    file = tmp_path / "far.json.gz"
    said = frtop("profile", "--steps", "2", "--yes", "-o", str(file), *shell)
    assert said.returncode == 0, said.stdout + said.stderr
    assert sorted(merged(file)["otherData"]["ranks"]) == ["0", "1"]
