"""Rank 2 waits for a build of a C++ extension whose builder was killed: its lock file is left."""

import time

from torch.utils.file_baton import FileBaton

from zoo.ground_truth import fault
from zoo.rank import STEP_S, join

CASE = fault("not_entered", 2, "lock", says="C++ extension")

job = join()
lock = job.folder / "lock"
for step in range(100):
    time.sleep(STEP_S)
    if step == 40 and job.rank == 2:
        lock.touch()
        job.mark_fault()
        FileBaton(str(lock)).wait()
    job.all_reduce()
