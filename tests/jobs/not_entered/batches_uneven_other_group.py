"""Rank 1 leaves the loop early and waits for the others in a separate checkpoint group."""

import torch.distributed as dist

from zoo.rank import fault, join

# One rank of four has left the loop; each of the two ops needs all four.
CASE = fault("deadlock", 1, "deadlock", says=("barrier", "all_reduce"))

job = join()
checkpoint = dist.new_group()
dist.barrier(checkpoint)
job.train(40 if job.rank == 1 else 60)
if job.rank == 1:
    job.mark_fault()
dist.barrier(checkpoint)
