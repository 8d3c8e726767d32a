"""Not slow: only rank 0 writes a checkpoint and evaluates, for 2 s every 30 steps."""

import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case
from zoo.rank import join
from zoo.steps import STEPS, WORK_S, optimizer_of, spin

CASE = Case(modes=("sync",), lasts_s=45)

job = join()
gradient, optimizer = torch.ones(1000), optimizer_of()
for step in range(STEPS):
    time.sleep(WORK_S)
    if job.rank == 0 and step % 30 == 10:
        (job.folder / "checkpoint").write_bytes(bytes(1 << 20))
        spin(2.0)
    dist.all_reduce(gradient)
    optimizer.step()
