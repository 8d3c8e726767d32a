"""Rank 3 never issues the first op of a new group: the others are making its communicator."""

import time

import torch
import torch.distributed as dist

from zoo import stand_in_nccl as nccl
from zoo.rank import fault, join

# nobody knows how long a group's first op takes
CASE = fault("not_entered", 3, "sleeping", within_s=60)

nccl.install()
job = join()
gradient = nccl.tensor()
group = dist.new_group()
for step, odd in enumerate(job.steps(3, count=10_000)):
    job.all_reduce(gradient)
    torch.cuda.synchronize()
    if odd:
        time.sleep(10_000)
    if step == 40:
        dist.all_reduce(gradient, group=group)
