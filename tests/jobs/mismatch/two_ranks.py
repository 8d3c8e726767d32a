"""One of two ranks calls barrier where the other reduces; no evidence shows which is right."""

import torch
import torch.distributed as dist

from zoo.ground_truth import fault
from zoo.rank import join

CASE = fault("mismatch", causes="mismatch", parties=((0,), (1,)), says="barrier", ranks=2)

job = join()
gradient = torch.ones(1000)
for odd in job.steps(1):
    if odd:
        job.keep(dist.barrier(async_op=job.late))
    else:
        job.keep(dist.all_reduce(gradient, async_op=job.late))
    job.wait()
