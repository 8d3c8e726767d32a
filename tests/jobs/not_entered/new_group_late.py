"""Rank 3 sleeps for an hour before it calls new_group."""

import time

import torch.distributed as dist

from zoo.ground_truth import fault
from zoo.rank import STEP_S, join

CASE = fault("not_entered", 3, "sleeping", says="new_group", within_s=50)

job = join()
for step in range(100):
    time.sleep(STEP_S)
    if step == 40:
        if job.rank == 3:
            job.mark_fault()
            time.sleep(3600)
        dist.new_group()
    job.all_reduce()
