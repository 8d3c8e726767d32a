"""Rank 1 has fewer batches, finishes, and ends."""

import torch.distributed as dist

from zoo.rank import fault, join

CASE = fault("dead", 1, "exited")

job = join()
job.train(40 if job.rank == 1 else 60)
if job.rank == 1:
    job.mark_fault()
dist.destroy_process_group()
