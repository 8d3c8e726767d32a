"""Not slow: rank 1 warms up for 30 steps, each of which takes it 100 ms longer."""

import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case
from zoo.rank import join
from zoo.steps import STEPS, WORK_S, optimizer_of, spin

CASE = Case(modes=("sync",), lasts_s=40)

job = join()
gradient, optimizer = torch.ones(1000), optimizer_of()
for step in range(STEPS):
    time.sleep(WORK_S)
    if job.rank == 1 and step < 30:
        spin(0.1)
    dist.all_reduce(gradient)
    optimizer.step()
