"""Rank 0 calls barrier where the others call all_reduce."""

import torch.distributed as dist

from zoo.rank import fault, join

CASE = fault("mismatch", 0, "mismatch", says="barrier")

job = join()
for odd in job.steps(0):
    if odd:
        job.call(dist.barrier)
    else:
        job.all_reduce()
