"""Rank 1 skips one of two unequal reductions; all later ops are shifted, and gloo aborts."""

import torch
import torch.distributed as dist

from zoo.rank import fault, join

CASE = fault("mismatch", 1, "mismatch")


job = join()
weight, bias = torch.ones(900), torch.ones(30)
for odd in job.steps(1):
    if not odd:
        job.keep(dist.all_reduce(weight, async_op=job.late))
    job.all_reduce(bias)
