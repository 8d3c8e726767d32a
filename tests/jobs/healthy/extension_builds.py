"""Rank 1 builds a C++ extension for 70 s; the others wait for its lock file. Nobody is stuck."""

import subprocess
import time

import torch
import torch.distributed as dist
from torch.utils.file_baton import FileBaton

from zoo.rank import Case, join, truth

# The builder takes no processor time here, and it is the first pause that frtop sees.
CASE = Case(modes=("sync",), lasts_s=95, allowed=(truth("undecided", progress="unknown"),))

job = join()
gradient = torch.ones(1000)
baton = FileBaton(str(job.folder / "lock"))
for step, odd in enumerate(job.steps(1, count=2000)):
    if odd:
        baton.try_acquire()
        subprocess.run(["sleep", "70"], check=True)
        baton.release()
    elif step == 40:
        time.sleep(1)
        baton.wait()
    dist.all_reduce(gradient)
