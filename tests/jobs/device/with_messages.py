"""Rank 2 sleeps before an op of a group that had messages: its devices' counts tell nothing."""

import time

import torch
import torch.distributed as dist

from zoo import stand_in_nccl as nccl
from zoo.rank import fault, join

CASE = fault("not_entered", 2, "sleeping", modes=("sync",))

nccl.install()
job = join()
gradient = nccl.tensor()
for odd in job.steps(2, at=60, count=10_000):
    if odd:
        time.sleep(10_000)
    if job.rank in (0, 1):
        (dist.send if job.rank else dist.recv)(gradient, 1 - job.rank)
    dist.all_reduce(gradient)
    torch.cuda.synchronize()
