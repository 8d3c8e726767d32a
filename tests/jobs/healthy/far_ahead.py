"""All ranks issue hundreds of asynchronous ops at once; rank 2 is slow to issue them."""

import time

import torch
import torch.distributed as dist

from zoo.rank import STEP_S, Case, join, truth

CASE = Case(
    modes=("late",), lasts_s=50, allowed=(truth("not_entered", 2, "sleeping", progress="active"),)
)

job = join()
for _ in range(3):
    if job.rank == 2:
        job.mark_fault()
    gradients = [torch.ones(100) for _ in range(500)]
    for gradient in gradients:
        if job.rank == 2:
            time.sleep(STEP_S)
        job.keep(dist.all_reduce(gradient, async_op=True))
    job.wait()
