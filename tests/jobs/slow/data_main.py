"""Rank 1 loads its batches itself, and each takes 40 ms longer than those of the others."""

import time

import torch
import torch.distributed as dist

from zoo.rank import join, slow
from zoo.steps import WORK_S, batches, optimizer_of

CASE = slow(1, "data", says="in the rank itself", late_ms=40)

job = join()
gradient, optimizer = torch.ones(100), optimizer_of()
for batch in batches(0.045 if job.rank == 1 else 0.005):
    job.mark_fault()
    time.sleep(WORK_S)
    gradient += batch.mean()
    dist.all_reduce(gradient)
    optimizer.step()
