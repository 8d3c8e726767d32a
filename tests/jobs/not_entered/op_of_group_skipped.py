"""Rank 1 swallows an exception and skips an all_reduce of its data group.

Rank 0 waits for it in the data group; rank 1 and all others wait for rank 0 in the world group.
"""

import torch
import torch.distributed as dist

from zoo.rank import fault, join

# Only the program shows that rank 1 should have entered the data group first.
CASE = fault("deadlock", causes="deadlock", parties=((0,), (1, 2, 3)))

job = join()
data = [dist.new_group([0, 1]), dist.new_group([2, 3])][job.rank // 2]
loss, gradient = torch.ones(100), torch.ones(100)
for odd in job.steps(1):
    try:
        if odd:
            raise ZeroDivisionError("loss of an empty batch")
        job.all_reduce(loss, data)
    except ZeroDivisionError as error:
        print("skipped:", error)
    job.all_reduce(gradient)
