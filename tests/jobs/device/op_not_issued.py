"""Rank 2 sleeps before an op; the others have handed it to their devices, and wait for these."""

import time

import torch
import torch.distributed as dist

from zoo import stand_in_nccl as nccl
from zoo.rank import fault, join

CASE = fault("not_entered", 2, "sleeping")

nccl.install()
job = join()
gradient = nccl.tensor()
for odd in job.steps(2, at=60, count=10_000):
    if odd:
        time.sleep(10_000)
    for _ in range(3):
        job.keep(dist.all_reduce(gradient, async_op=job.late))
    job.wait()
    torch.cuda.synchronize()
