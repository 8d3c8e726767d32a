"""A real job that hangs, and Pythons of this host that have nothing but the standard library."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from release.measure import Job

ROOT = Path(__file__).parents[2]
MINORS = range(10, 15)


@contextmanager
def hanging_job(folder: Path) -> Iterator[list[int]]:
    """Two ranks, the second of which never enters an all_reduce; yields their pids."""
    with closing(Job(folder)) as job:
        yield job.pids


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
