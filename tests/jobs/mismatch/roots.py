"""Rank 2 passes itself as the root of a broadcast."""

import torch
import torch.distributed as dist

from zoo.rank import fault, join

CASE = fault("mismatch", 2, "mismatch", says="root 2")

job = join()
weights, loss = torch.ones(1000), torch.ones(1)
for odd in job.steps(2):
    job.keep(dist.all_reduce(loss, async_op=job.late))
    job.call(dist.broadcast, weights, src=2 if odd else 0)
