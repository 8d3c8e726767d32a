"""Rank 1 has fewer batches, leaves the loop and waits for the others in a barrier."""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from zoo.rank import STEP_S, fault, join

CASE = fault("mismatch", 1, says=("barrier", "all_reduce"), modes=("sync",))

job = join()
model = DistributedDataParallel(torch.nn.Linear(10, 10))
for _ in range(40 if job.rank == 1 else 60):
    time.sleep(STEP_S)
    model.zero_grad()
    model(torch.ones(4, 10)).sum().backward()
if job.rank == 1:
    job.mark_fault()
dist.barrier()
