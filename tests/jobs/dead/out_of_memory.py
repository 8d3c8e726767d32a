"""Rank 1 takes more memory than its container has, and the kernel kills it."""

import os
from pathlib import Path

import torch

from zoo.rank import fault, job_before_init, join

CASE = fault("dead", 1, "oom", says=("SIGKILL", "oom_kill"), needs=("memory cgroup",))

if job_before_init().rank == 1:
    (Path(os.environ["ZOO_CGROUP"]) / "cgroup.procs").write_text(str(os.getpid()))
job = join()
gradient, kept = torch.ones(1000), []
for odd in job.steps(1):
    if odd:
        kept += [torch.ones(2**25) for _ in range(8)]
    job.all_reduce(gradient)
