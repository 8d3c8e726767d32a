"""Rank 1 has fewer batches, finishes, and ends."""

import time

import torch.distributed as dist

from zoo.ground_truth import fault
from zoo.rank import STEP_S, join

CASE = fault("dead", 1, "exited")

job = join()
for _ in range(40 if job.rank == 1 else 60):
    time.sleep(STEP_S)
    job.all_reduce()
if job.rank == 1:
    job.mark_fault()
dist.destroy_process_group()
