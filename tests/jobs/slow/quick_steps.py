"""Steps of 70 ms with twelve ops; rank 2 computes 37 ms longer before the first of them."""

import time

import torch
import torch.distributed as dist

from zoo.rank import join, slow
from zoo.steps import STEPS, optimizer_of, spin

CASE = slow(2, ("compute", "starved", "unknown"), says="all_reduce", late_ms=37)
OPS = 12
WORK_S = 0.03

job = join()
gradient, optimizer = torch.ones(1000), optimizer_of()
for _ in range(2 * STEPS):
    if job.rank == 2:
        job.mark_fault()
        spin(0.037)
    for _ in range(OPS):
        time.sleep(WORK_S / OPS)
        dist.all_reduce(gradient)
    optimizer.step()
