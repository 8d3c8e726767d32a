"""Rank 1 does not enter one op, and the rings wrap before any rank waits for it."""

import time

import torch
import torch.distributed as dist

from zoo.rank import STEP_S, fault, join

CASE = fault("not_entered", 1, "sleeping", modes=("late",), within_s=60)
MORE_THAN_A_RING = 8500

job = join()
pairs = [dist.new_group(ranks, group_desc="pair") for ranks in ([0, 1], [2, 3])]
mine = pairs[job.rank // 2]
gradient, small = torch.ones(1000), torch.ones(1)
for _ in range(40):
    time.sleep(STEP_S)
    job.keep(dist.all_reduce(gradient, async_op=True))
    job.wait()
job.mark_fault()
if job.rank != 1:
    job.keep(dist.all_reduce(gradient, async_op=True))
for _ in range(MORE_THAN_A_RING // 100):
    works = [dist.all_reduce(small, group=mine, async_op=True) for _ in range(100)]
    for work in works:
        work.wait()
if job.rank == 1:
    time.sleep(3600)
job.wait()
