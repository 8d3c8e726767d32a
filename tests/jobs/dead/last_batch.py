"""Rank 2 gathers less because its last batch is shorter; gloo aborts innocent ranks."""

import torch
import torch.distributed as dist

from zoo.rank import fault, join

CASE = fault("mismatch", 2, "mismatch", says=("24", "64"))

job = join()
for odd in job.steps(2, at=39, count=40):
    batch = 24 if odd else 64
    features = torch.ones(batch, 16)
    gathered = [torch.empty_like(features) for _ in range(job.world)]
    job.call(dist.all_gather, gathered, features)
