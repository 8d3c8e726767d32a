"""Not slow: two pipelines of uneven stages; the first stage arrives last at the clipping."""

import time

import torch
import torch.distributed as dist

from zoo.rank import Case, join
from zoo.steps import STEPS, groups_of, optimizer_of

CASE = Case(modes=("sync",), lasts_s=40)

job = join()
stage = groups_of([[0, 1], [2, 3]], "pipeline", job.rank)
data = groups_of([[0, 2], [1, 3]], "data", job.rank)
tensor, gradient, optimizer = torch.ones(1000), torch.ones(1000), optimizer_of()
for _ in range(STEPS):
    if job.rank % 2 == 0:
        time.sleep(0.02)
        dist.send(tensor, job.rank + 1, group=stage)
        dist.recv(tensor, job.rank + 1, group=stage)
        time.sleep(0.03)
    else:
        dist.recv(tensor, job.rank - 1, group=stage)
        time.sleep(0.08)
        dist.send(tensor, job.rank - 1, group=stage)
    dist.all_reduce(gradient, group=data)
    dist.all_reduce(gradient)
    optimizer.step()
