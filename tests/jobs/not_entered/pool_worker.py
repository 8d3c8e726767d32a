"""Rank 2 waits for its pool of processes, one of which reads a file that never comes."""

import multiprocessing
import os
from pathlib import Path

from zoo.rank import fault, join

CASE = fault(
    "not_entered", 2, "lock", says=("its pool of processes", "its child pid", "(tokenize)")
)


def tokenize(path: str) -> int:
    return len(Path(path).read_bytes())


pool = multiprocessing.get_context("fork").Pool(2)  # before there are threads
job = join()
rows, fifo = job.folder / f"rows{job.rank}", job.folder / "fifo"
rows.write_bytes(b"1")
if job.rank == 2:
    os.mkfifo(fifo)  # nobody writes to it
for odd in job.steps(2):
    pool.map(tokenize, [str(rows), str(fifo if odd else rows)])
    job.all_reduce()
