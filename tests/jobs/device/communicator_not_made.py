"""Rank 3 never issues the first op of a new group: the others are making its communicator."""

import time

import torch
import torch.distributed as dist

from zoo import stand_in_nccl as nccl
from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join

CASE = Case(
    (Truth(("not_entered",), culprits=(3,), causes=("sleeping",)),),
    modes=("sync", "late"),
    within_s=60.0,  # nobody knows how long a group's first op takes
)

nccl.install()
job = join()
gradient = nccl.tensor()
group = dist.new_group()
for step in range(10_000):
    time.sleep(STEP_S)
    job.all_reduce(gradient)
    torch.cuda.synchronize()
    if step == 40:
        if job.rank == 3:
            job.mark_fault()
            time.sleep(10_000)
        dist.all_reduce(gradient, group=group)
