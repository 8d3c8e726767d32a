"""Not slow: in each step another rank, drawn at random, has twice as many tokens of its expert."""

import random
import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case
from zoo.rank import join
from zoo.steps import STEPS, WORK_S, optimizer_of

CASE = Case(modes=("sync",), lasts_s=45)

job = join()
routing = random.Random(7)
tokens, optimizer = torch.ones(1000), optimizer_of()
for _ in range(STEPS):
    hot = routing.randrange(job.world)
    time.sleep(WORK_S * (1 + (job.rank == hot)))
    dist.all_reduce(tokens)
    optimizer.step()
