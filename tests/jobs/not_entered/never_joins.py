"""The process of rank 2 runs, but never calls init_process_group."""

import time

import torch
import torch.distributed as dist

from zoo.rank import fault, job_before_init, join

CASE = fault(
    "not_entered",
    2,
    "never_joined",
    progress="unknown",
    says="init_process_group",
    modes=("sync",),
    within_s=60,
)

job = job_before_init()
if job.rank == 2:
    time.sleep(3600)
job.mark_fault()
join()
dist.all_reduce(torch.ones(1000))
