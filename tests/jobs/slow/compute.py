"""Rank 2 computes 40 ms longer than the others in every step."""

import time

import torch
import torch.distributed as dist

from zoo.ground_truth import fault
from zoo.rank import join
from zoo.steps import STEPS, WORK_S, optimizer_of, spin

CASE = fault(
    "slow",
    2,
    ("compute", "starved"),
    progress="active",
    says="all_reduce",
    late_ms=40,
    modes=("sync",),
    within_s=60,
)

job = join()
gradient, optimizer = torch.ones(1000), optimizer_of()
for _ in range(STEPS):
    time.sleep(WORK_S)
    if job.rank == 2:
        job.mark_fault()
        spin(0.04)
    dist.all_reduce(gradient)
    optimizer.step()
