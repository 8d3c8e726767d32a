"""Rank 1 passes 64 elements to an all_gather of 1024; gloo aborts."""

import torch
import torch.distributed as dist

from zoo.rank import fault, join

CASE = fault("mismatch", 1, "mismatch", says="64")

job = join()
for odd in job.steps(1):
    size = 64 if odd else 1024
    shards = [torch.empty(size) for _ in range(job.world)]
    job.call(dist.all_gather, shards, torch.ones(size))
