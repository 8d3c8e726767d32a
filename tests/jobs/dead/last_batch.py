"""Rank 2 gathers less because its last batch is shorter; gloo aborts innocent ranks."""

import time

import torch
import torch.distributed as dist

from zoo.ground_truth import fault
from zoo.rank import STEP_S, join

STEPS = 40
CASE = fault("mismatch", 2, "mismatch", says=("24", "64"))

job = join()
for step in range(STEPS):
    time.sleep(STEP_S)
    batch = 64
    if step == STEPS - 1 and job.rank == 2:
        job.mark_fault()
        batch = 24
    features = torch.ones(batch, 16)
    gathered = [torch.empty_like(features) for _ in range(job.world)]
    job.keep(dist.all_gather(gathered, features, async_op=job.late))
    job.wait()
