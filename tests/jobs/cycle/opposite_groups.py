"""Half of the ranks use two groups in the opposite order."""

import torch.distributed as dist

from zoo.rank import fault, join

CASE = fault("deadlock", causes="deadlock", parties=((0, 1), (2, 3)))

job = join()
data = dist.new_group(group_desc="data")
tensor = dist.new_group(group_desc="tensor")
for odd in job.steps():
    order = [data, tensor]
    if odd:
        order = order if job.rank < 2 else order[::-1]
    for group in order:
        job.all_reduce(group=group)
