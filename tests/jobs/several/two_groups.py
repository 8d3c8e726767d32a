"""Two independent groups: in one a rank sleeps, in the other a rank reads and gets no data."""

import time

import torch.distributed as dist

from zoo.rank import Case, join, truth

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
for odd in job.steps(1, 5):
    if odd and job.rank == 1:
        time.sleep(3600)
    if odd:
        pipe.read_bytes()
    job.all_reduce(group=mine)
