"""All ranks need 10 ms of a processor in each step; rank 1's container gives it a fifth of one.

How late that makes it depends on what else runs on the host.
"""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist

from zoo.cgroup import give_fifth
from zoo.ground_truth import fault
from zoo.rank import join
from zoo.steps import STEPS, WORK_S, optimizer_of

CASE = fault(
    "slow", 1, "starved", progress="active", modes=("sync",), within_s=90, needs=("cpu cgroup",)
)

job = join()
if job.rank == 1:
    give_fifth(Path(os.environ["ZOO_CGROUP"]), os.getpid())
gradient, optimizer = torch.ones(1000), optimizer_of()
for _ in range(STEPS):
    job.mark_fault()
    time.sleep(WORK_S)
    begun = time.thread_time()
    while time.thread_time() - begun < 0.01:
        pass
    dist.all_reduce(gradient)
    optimizer.step()
