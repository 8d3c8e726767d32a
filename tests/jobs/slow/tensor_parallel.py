"""Two tensor parallel pairs; rank 3 is 40 ms late to the pair's reductions, and so all others wait.

Its neighbour, rank 2, comes late to its data group because of that, and is not to blame.
"""

import time

import torch
import torch.distributed as dist

from zoo.rank import join, slow
from zoo.steps import STEPS, groups_of, optimizer_of, spin

CASE = slow(3, says="of tensor", late_ms=40)

job = join()
tensor = groups_of([[0, 1], [2, 3]], "tensor", job.rank)
data = groups_of([[0, 2], [1, 3]], "data", job.rank)
gradient, optimizer = torch.ones(1000), optimizer_of()
for _ in range(STEPS):
    job.mark_fault()
    for _ in range(4):
        time.sleep(0.03)
        if job.rank == 3:
            spin(0.04)
        dist.all_reduce(gradient, group=tensor)
    dist.all_reduce(gradient, group=data)
    optimizer.step()
