"""Rank 1 has fewer batches, finishes, and ends."""

import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join

CASE = Case((Truth(("dead",), culprits=(1,), causes=("exited",)),))


def main() -> None:
    job = join()
    gradient = torch.ones(1000)
    for _ in range(40 if job.rank == 1 else 60):
        time.sleep(STEP_S)
        job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()
    if job.rank == 1:
        job.mark_fault()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
