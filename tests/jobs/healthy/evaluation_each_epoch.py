"""Each epoch ends with an evaluation by a service, for which all ranks wait in silence for 70 s."""

import time

import torch
import torch.distributed as dist

from zoo.rank import STEP_S, Case, join, truth

# The first one is longer than any pause that was seen before.
CASE = Case(modes=("sync",), lasts_s=230, allowed=(truth("undecided", progress="unknown"),))

job = join()
gradient = torch.ones(1000)
for step in range(10_000):
    time.sleep(STEP_S)
    if step % 100 == 99:
        job.mark_fault()
        time.sleep(70)
    dist.all_reduce(gradient)
