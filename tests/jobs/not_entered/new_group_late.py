"""Rank 3 sleeps for an hour before it calls new_group."""

import time

import torch.distributed as dist

from zoo.rank import fault, join

CASE = fault("not_entered", 3, "sleeping", says="new_group", within_s=50)

job = join()
for step, odd in enumerate(job.steps(3)):
    if odd:
        time.sleep(3600)
    if step == 40:
        dist.new_group()
    job.all_reduce()
