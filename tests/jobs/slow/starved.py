"""Rank 1 needs 25 ms of a processor in every step, and its container gives it half of one.

How late that makes it depends on what else runs on the host.
"""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist

from zoo.cgroup import give_half
from zoo.ground_truth import Case, Truth
from zoo.rank import join
from zoo.steps import STEPS, WORK_S, optimizer_of

CASE = Case(
    (
        Truth(("slow",), culprits=(1,), causes=("starved",), progress=("active",)),
    ),
    modes=("sync",),
    within_s=90,
    needs=("cpu cgroup",),
)  # fmt: skip


def main() -> None:
    job = join()
    if job.rank == 1:
        give_half(Path(os.environ["ZOO_CGROUP"]), os.getpid())
    gradient, optimizer = torch.ones(1000), optimizer_of()
    for _ in range(STEPS):
        job.mark_fault()
        time.sleep(WORK_S)
        begun = time.thread_time()
        while time.thread_time() - begun < 0.025:
            pass
        dist.all_reduce(gradient)
        optimizer.step()


if __name__ == "__main__":
    main()
