"""Rank 1 sleeps 30 ms in every step, and nothing but its stack shows it."""

import time

import torch
import torch.distributed as dist

from zoo.ground_truth import fault
from zoo.rank import join
from zoo.steps import STEPS, WORK_S, optimizer_of

CASE = fault(
    "slow",
    1,
    "unknown",
    progress="active",
    says="cause not found",
    late_ms=30,
    modes=("sync",),
    within_s=60,
)

job = join()
gradient, optimizer = torch.ones(1000), optimizer_of()
for _ in range(STEPS):
    time.sleep(WORK_S)
    if job.rank == 1:
        job.mark_fault()
        time.sleep(0.03)
    dist.all_reduce(gradient)
    optimizer.step()
