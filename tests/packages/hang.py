"""A real job that hangs, and Pythons of this host that have nothing but the standard library."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from waiting import wait_for

ROOT = Path(__file__).parents[2]
MINORS = range(10, 15)


@contextmanager
def hanging_job(folder: Path) -> Iterator[list[int]]:
    """Two ranks, the second of which never enters an all_reduce; yields their pids."""
    log = folder / "job.log"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    program = str(ROOT / "release" / "hanging_job.py")
    with log.open("wb") as output:
        job = subprocess.Popen(
            [*torchrun, "--nproc-per-node", "2", program],
            stdout=output,
            stderr=output,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )

    def pids() -> list[int]:
        found = [int(pid) for pid in re.findall(r"pid (\d+)", log.read_text())]
        return found if len(found) == 2 else []

    try:
        yield wait_for(pids, log.read_text, 120)
    finally:
        job.send_signal(signal.SIGTERM)  # torchrun ends its ranks
        job.wait(60)


def clean_pythons() -> list[str]:
    """A Python of each minor version that frtop supports, as far as this host has them."""
    found: dict[int, str] = {}
    candidates = [shutil.which(f"python3.{minor}") for minor in MINORS]
    installed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates += map(str, installed.glob("3.*/bin/python3"))
    for python in filter(None, candidates):
        said = subprocess.run([python, "-V"], capture_output=True, text=True, check=False)
        version = re.fullmatch(r"Python 3\.(\d+)\.\d+\n", said.stdout)
        if said.returncode == 0 and version and int(version[1]) in MINORS:
            found.setdefault(int(version[1]), python)
    return [found[minor] for minor in sorted(found)]


def bare(home: Path) -> dict[str, str]:
    """An environment with nothing of ours: no PATH to py-spy, no settings."""
    return {"HOME": str(home), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
