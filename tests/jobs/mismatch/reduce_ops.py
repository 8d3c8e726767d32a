"""From one step on, rank 2 reduces with MAX where the others use SUM; the job continues."""

import time

import torch
import torch.distributed as dist

from zoo.rank import STEP_S, fault, join

CASE = fault("mismatch", 2, "mismatch", progress="active", says="max")

job = join()
gradient = torch.ones(1000)
for step in range(100_000):
    time.sleep(STEP_S)
    reduce = dist.ReduceOp.SUM
    if step >= 40 and job.rank == 2:
        job.mark_fault()
        reduce = dist.ReduceOp.MAX
    job.call(dist.all_reduce, gradient, op=reduce)
