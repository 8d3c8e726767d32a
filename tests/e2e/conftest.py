"""Real jobs: every test has its own frtop folder, and leaves no process or file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from waiting import wait_for

JOBS = Path(__file__).parents[1] / "jobs"
Launch = Callable[..., "subprocess.Popen[str]"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
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
        for process in family(folder):
            process.kill()
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


@pytest.fixture
def torchrun(home: Path) -> Iterator[Launch]:
    """Starts `frtop run -- torchrun` on a program of tests/jobs."""
    started: list[subprocess.Popen[str]] = []

    def launch(
        program: str, *arguments: str, ranks: int = 2, python: str = sys.executable
    ) -> subprocess.Popen[str]:
        started.append(_launched(program, *arguments, ranks=ranks, python=python))
        return started[-1]

    yield launch
    for rank in family(home):  # a rank that runs on keeps the pipe open
        rank.kill()
    for process in started:
        process.kill()
        process.communicate()


def _launched(
    program: str,
    *arguments: str,
    ranks: int,
    python: str = sys.executable,
    output: int = subprocess.PIPE,
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "frtop_tui", "run", "--", python, "-m",
         "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks),
         str(JOBS / program), *arguments],
        stdout=output, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True,
    )  # fmt: skip


def wait_for_ranks(home: Path, ranks: int, file: str = "ring") -> None:
    """Waits until there is an agent, and a file of this kind of each rank."""
    wait_for(
        lambda: any(home.glob("agent-*.json")) and len(list(home.glob(f"*.{file}"))) == ranks,
        f"an agent and {ranks} ranks",
    )


@contextmanager
def told_to_hang(folder: Path) -> Iterator[Path]:
    """A job of two ranks that trains until `hang` is in the folder, for tests of a module."""
    os.mkfifo(folder / "shard")
    with pytest.MonkeyPatch.context() as patch, own_home(patch) as home:
        words = "told_to_hang.py", str(folder), "1"
        job = _launched(*words, ranks=2, output=subprocess.DEVNULL)
        try:
            wait_for_ranks(home, 2)
            yield folder
        finally:
            for process in family(home):
                process.kill()
            job.kill()
            job.wait()


def frtop(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the program as a user does."""
    return subprocess.run(
        [sys.executable, "-m", "frtop_tui", *arguments],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
