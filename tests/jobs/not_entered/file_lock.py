"""Rank 1 waits for a cache file that a process outside the job has locked."""

import fcntl
import subprocess
import time
from pathlib import Path

from zoo.rank import fault, join

CASE = fault("not_entered", 1, "lock", says="cache.lock")


def lock_from_outside(path: Path) -> None:
    """Locks the file from a process that is not a child of the job: its shell has ended."""
    subprocess.run(["sh", "-c", f"flock {path} sleep 3600 &"], check=True)
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            fcntl.flock(file, fcntl.LOCK_UN)
            time.sleep(0.01)


job = join()
cache = job.folder / "cache.lock"
if job.rank == 1:
    lock_from_outside(cache)
for odd in job.steps(1):
    if odd:
        with cache.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
    job.all_reduce()
