"""Rank 2 calls barrier where the others call all_reduce."""

import torch
import torch.distributed as dist

from zoo.ground_truth import fault
from zoo.rank import join

CASE = fault("mismatch", 2, "mismatch", says="barrier")

job = join()
gradient = torch.ones(1000)
for odd in job.steps(2):
    if odd:
        job.keep(dist.barrier(async_op=job.late))
    else:
        job.keep(dist.all_reduce(gradient, async_op=job.late))
    job.wait()
