"""Rank 2 prints into a full pipe that nobody reads, while the others gather metrics."""

import os

import torch
import torch.distributed as dist

from zoo.rank import fault, join

CASE = fault("not_entered", 2, "pipe", says="write pipe:", modes=("sync",))

job = join()
_, write = os.pipe()
log = os.fdopen(write, "w", 1)
for step, odd in enumerate(job.steps(2)):
    dist.all_reduce(torch.ones(100))
    if odd:
        while True:
            print("loss 0.3 " * 100, file=log)
    measured: list[object] = [None] * job.world
    dist.all_gather_object(measured, {"rank": job.rank, "step": step})
