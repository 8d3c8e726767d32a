"""Rank 2 prints into a full pipe that nobody reads, while the others gather metrics."""

import os
import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join

CASE = Case(
    (Truth(("not_entered",), culprits=(2,), causes=("pipe",), says=("write pipe:",)),),
    modes=("sync",),
)


def main() -> None:
    job = join()
    _, write = os.pipe()
    log = os.fdopen(write, "w", 1)
    for step in range(100):
        time.sleep(STEP_S)
        dist.all_reduce(torch.ones(100))
        if step == 40 and job.rank == 2:
            job.mark_fault()
            while True:
                print("loss 0.3 " * 100, file=log)
        measured: list[object] = [None] * job.world
        dist.all_gather_object(measured, {"rank": job.rank, "step": step})


if __name__ == "__main__":
    main()
