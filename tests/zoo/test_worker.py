"""The processes that run programs of the zoo lose no result and leave no files."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from zoo.__main__ import _Worker

PROGRAM = """
import sys, time
from zoo.runner import Zoo
with Zoo() as zoo:
    print(zoo.folder, flush=True)
    time.sleep(600)
"""


def test_a_program_fails_if_its_worker_ends_by_itself() -> None:
    worker = _Worker()
    try:
        worker._process.kill()
        worker._process.wait()
        worker.start("dead/killed", "late", dumps=False)
        run = worker.result()
        assert (run.name, run.mode, run.failure) == (
            "dead/killed", "late", "its worker ended with status -9",
        )  # fmt: skip
        assert worker._process.poll() is None
    finally:
        worker.terminate()
        worker.wait()


def test_a_killed_zoo_leaves_no_folder() -> None:
    zoo = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=Path(__file__).parents[1],
        stdout=subprocess.PIPE,
        text=True,
    )
    with zoo:
        assert zoo.stdout is not None
        folder = Path(zoo.stdout.readline().strip())
        assert folder.is_dir()
        zoo.kill()
    end = time.monotonic() + 30
    while folder.exists():
        assert time.monotonic() < end, sorted(folder.iterdir())
        time.sleep(0.1)
