"""A deadlock of two pairs of ranks, and a third pair in which one sleeps: two root causes."""

import time

import torch.distributed as dist

from zoo.rank import Case, join, truth

CASE = Case(
    (
        truth("deadlock", causes="deadlock", parties=((0, 1), (2, 3))),
        truth("not_entered", 5, "sleeping"),
    ),
    ranks=6,
)

job = join()
data = dist.new_group([0, 1, 2, 3], group_desc="data")
tensor = dist.new_group([0, 1, 2, 3], group_desc="tensor")
other = dist.new_group([4, 5], group_desc="evaluation")
for odd in job.steps():
    order = [data, tensor] if job.rank < 4 else [other]
    if odd:
        order = order[::-1] if job.rank in (2, 3) else order
        if job.rank == 5:
            time.sleep(3600)
    for group in order:
        job.all_reduce(group=group)
