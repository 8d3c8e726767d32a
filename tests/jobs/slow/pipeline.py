"""Two pipelines of two uneven stages; the second stage of one computes 40 ms longer in each step.

Ranks 0 and 1 are one pipeline, 2 and 3 the other. Rank 2 waits for rank 3, and comes late to its
data group because of that. The second stages have more work than the first, by design.
"""

import time

import torch
import torch.distributed as dist

from zoo.rank import join, slow
from zoo.steps import STEPS, groups_of, optimizer_of, spin

CASE = slow(3, says="of data", late_ms=40)

job = join()
stage = groups_of([[0, 1], [2, 3]], "pipeline", job.rank)
data = groups_of([[0, 2], [1, 3]], "data", job.rank)
tensor, gradient, optimizer = torch.ones(1000), torch.ones(1000), optimizer_of()
for _ in range(STEPS):
    job.mark_fault()
    if job.rank % 2 == 0:
        time.sleep(0.03)
        dist.send(tensor, job.rank + 1, group=stage)
        dist.recv(tensor, job.rank + 1, group=stage)
    else:
        dist.recv(tensor, job.rank - 1, group=stage)
        time.sleep(0.06)
        if job.rank == 3:
            spin(0.04)
        dist.send(tensor, job.rank - 1, group=stage)
    dist.all_reduce(gradient, group=data)
    optimizer.step()
