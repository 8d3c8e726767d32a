"""Two independent groups: in one a rank sleeps, in the other a rank reads and gets no data."""

import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, truth
from zoo.rank import STEP_S, join

CASE = Case(
    (
        truth("not_entered", 1, "sleeping", says="left"),
        truth("not_entered", 5, "file_io", says="right"),
    ),
    ranks=6,
)

job = join()
left = dist.new_group([0, 1, 2], group_desc="left")
right = dist.new_group([3, 4, 5], group_desc="right")
mine = left if job.rank < 3 else right
pipe = job.pipe("shard")
gradient = torch.ones(1000)
for step in range(100):
    time.sleep(STEP_S)
    if step == 40 and job.rank == 1:
        job.mark_fault()
        time.sleep(3600)
    if step == 40 and job.rank == 5:
        job.mark_fault()
        pipe.read_bytes()
    job.keep(dist.all_reduce(gradient, group=mine, async_op=job.late))
    job.wait()
