"""The DataLoader's worker of rank 3 needs 300 ms for a batch, and a step takes 60 ms."""

import time

import torch
import torch.distributed as dist

from zoo.rank import join, slow
from zoo.steps import WORK_S, batches, optimizer_of

CASE = slow(3, "data", says="DataLoader workers", late_ms=235)

job = join()
gradient, optimizer = torch.ones(100), optimizer_of()
for batch in batches(0.3 if job.rank == 3 else 0.005, workers=1):
    job.mark_fault()
    time.sleep(WORK_S)
    gradient += batch.mean()
    dist.all_reduce(gradient)
    optimizer.step()
