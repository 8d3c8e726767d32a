"""Rank 2 calls all_gather where the others call all_reduce."""

import torch
import torch.distributed as dist

from zoo.rank import fault, join

CASE = fault("mismatch", 2, "mismatch", says="all_gather")

job = join()
gradient = torch.ones(1000)
shards = [torch.empty(1000) for _ in range(job.world)]
for odd in job.steps(2):
    if odd:
        job.call(dist.all_gather, shards, gradient)
    else:
        job.all_reduce(gradient)
