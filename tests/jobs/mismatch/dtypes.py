"""Rank 2 reduces float64 where the others reduce float32; gloo aborts."""

import torch
import torch.distributed as dist

from zoo.ground_truth import fault
from zoo.rank import join

CASE = fault("mismatch", 2, "mismatch", says="float64")

job = join()
gradient = torch.ones(1000)
for odd in job.steps(2):
    if odd:
        job.keep(dist.all_reduce(gradient.double(), async_op=job.late))
    else:
        job.keep(dist.all_reduce(gradient, async_op=job.late))
    job.wait()
