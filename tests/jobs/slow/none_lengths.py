"""Not slow: work depends on the length of each rank's own samples, and evens out."""

import random
import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case
from zoo.rank import join
from zoo.steps import STEPS, WORK_S, optimizer_of

CASE = Case(modes=("sync",), lasts_s=14)

job = join()
samples = random.Random(job.rank)
gradient, optimizer = torch.ones(1000), optimizer_of()
for _ in range(STEPS):
    time.sleep(min(0.5, samples.expovariate(1 / WORK_S)))
    dist.all_reduce(gradient)
    optimizer.step()
