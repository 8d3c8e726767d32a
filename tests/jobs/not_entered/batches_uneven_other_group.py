"""Rank 1 leaves the loop early and waits for the others in a separate checkpoint group."""

import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join

# One rank of four has left the loop; each of the two ops needs all four.
CASE = Case((Truth(("cycle",), culprits=(1,), causes=("cycle",), says=("barrier", "all_reduce")),))


def main() -> None:
    job = join()
    checkpoint = dist.new_group()
    gradient = torch.ones(1000)
    dist.barrier(checkpoint)
    for _ in range(40 if job.rank == 1 else 60):
        time.sleep(STEP_S)
        job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()
    if job.rank == 1:
        job.mark_fault()
    dist.barrier(checkpoint)


if __name__ == "__main__":
    main()
