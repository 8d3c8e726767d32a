"""Real jobs: every test has its own frtop folder, and leaves no process or file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from waiting import wait_for

HERE = Path(__file__).parent
JOBS = HERE.with_name("jobs")
Launch = Callable[..., "subprocess.Popen[str]"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.job)


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Creates an FRTOP_DIR in shared memory; agents bind to loopback and end with the test."""
    with own_home(monkeypatch) as folder:
        yield folder


@contextmanager
def own_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The same for a job that several tests look at."""
    folder = Path(tempfile.mkdtemp(prefix="frtop-test-", dir="/dev/shm"))
    monkeypatch.setenv("FRTOP_DIR", str(folder))
    monkeypatch.setenv("FRTOP_KEY_FILE", str(folder / "key"))
    monkeypatch.setenv("FRTOP_BIND", "127.0.0.1")
    monkeypatch.setenv("FRTOP_AGENT_WITH", str(os.getpid()))
    try:
        yield folder
    finally:
        kill_family(folder)
        shutil.rmtree(folder)


def family(folder: Path) -> list[psutil.Process]:
    """Returns all processes that use this FRTOP_DIR, except our own."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("FRTOP_DIR") == str(folder) and process.pid != os.getpid():
                found.append(process)
        except psutil.Error:
            continue
    return found


def kill_family(folder: Path) -> None:
    for process in family(folder):
        with suppress(psutil.NoSuchProcess):
            process.kill()


@pytest.fixture
def torchrun(home: Path) -> Iterator[Launch]:
    """Starts `frtop run -- torchrun` on a program of tests/jobs."""
    started: list[subprocess.Popen[str]] = []

    def launch(
        program: str, *arguments: str, ranks: int = 2, python: str = sys.executable
    ) -> subprocess.Popen[str]:
        job = subprocess.Popen(
            [sys.executable, "-m", "frtop_tui", "run", "--", python, "-m",
             "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks),
             str(JOBS / program), *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True,
        )  # fmt: skip
        started.append(job)
        return job

    yield launch
    kill_family(home)  # a rank that runs on keeps the pipe open
    for process in started:
        process.kill()
        process.communicate()


def wait_for_ranks(home: Path, ranks: int, file: str = "ring") -> None:
    """Waits until there is an agent, and a file of this kind of each rank."""
    wait_for(
        lambda: any(home.glob("agent-*.json")) and len(list(home.glob(f"*.{file}"))) == ranks,
        f"an agent and {ranks} ranks",
    )


def frtop(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the program as a user does."""
    return subprocess.run(
        [sys.executable, "-m", "frtop_tui", *arguments],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
