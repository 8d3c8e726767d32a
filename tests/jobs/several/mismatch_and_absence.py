"""Two independent groups: in one a rank calls barrier, in the other a rank sleeps."""

import time

import torch.distributed as dist

from zoo.rank import Case, join, truth

CASE = Case(
    (truth("mismatch", 2, "mismatch", says="barrier"), truth("not_entered", 4, "sleeping")), ranks=6
)

job = join()
left = dist.new_group([0, 1, 2], group_desc="left")
right = dist.new_group([3, 4, 5], group_desc="right")
mine = left if job.rank < 3 else right
for odd in job.steps(2, 4):
    if odd and job.rank == 4:
        time.sleep(3600)
    if odd:
        job.call(dist.barrier, group=mine)
    else:
        job.all_reduce(group=mine)
