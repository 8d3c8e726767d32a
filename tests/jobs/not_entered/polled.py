"""Rank 0 polls for an op of its pair, which rank 1 does not enter because it sleeps."""

import time

import torch
import torch.distributed as dist

from zoo.rank import fault, join

CASE = fault("not_entered", 1, "sleeping")

job = join()
pair = dist.new_group([0, 1])
gradient = torch.ones(1000)
for odd in job.steps(1):
    if odd:
        time.sleep(3600)
    if job.rank < 2:
        work = dist.all_reduce(gradient, group=pair, async_op=True)
        while work is not None and not work.is_completed():
            pass
    job.all_reduce(gradient)
