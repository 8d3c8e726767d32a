"""Rank 3 does not call new_group, which all ranks must call, and continues training."""

import torch.distributed as dist

from zoo.rank import fault, join

# The whole world must call new_group; one rank of four has not, and waits elsewhere.
CASE = fault("deadlock", 3, "deadlock", says="new_group", within_s=50)

job = join()
for odd in job.steps():
    if odd and job.rank < 3:
        dist.new_group()
    job.all_reduce()
