"""One of two ranks reduces more elements; gloo aborts, and no evidence shows which is right."""

import torch
import torch.distributed as dist

from zoo.ground_truth import fault
from zoo.rank import join

CASE = fault("mismatch", causes="mismatch", parties=((0,), (1,)), says="1025", ranks=2)

job = join()
gradient = torch.ones(1024)
for odd in job.steps(1):
    if odd:
        job.keep(dist.all_reduce(torch.ones(1025), async_op=job.late))
    else:
        job.keep(dist.all_reduce(gradient, async_op=job.late))
    job.wait()
