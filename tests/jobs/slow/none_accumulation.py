"""Not slow: gradients are accumulated over four batches, and rank 0 has more ops: it logs."""

import time

import torch
import torch.distributed as dist

from zoo.rank import Case, join
from zoo.steps import STEPS, optimizer_of

CASE = Case(modes=("sync",), lasts_s=40)

job = join()
own = [dist.new_group([rank]) for rank in range(job.world)][job.rank]
gradient, loss, optimizer = torch.ones(1000), torch.ones(1), optimizer_of()
for step in range(STEPS):
    time.sleep(0.03)
    if job.rank == 0:
        for _ in range(5):
            dist.all_reduce(loss, group=own)
    if step % 4 == 3:
        dist.all_reduce(gradient)
        optimizer.step()
