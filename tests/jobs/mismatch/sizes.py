"""Rank 2 reduces 1025 elements where the others reduce 1024; gloo aborts."""

import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join

CASE = Case((Truth(("mismatch",), culprits=(2,), causes=("mismatch",), says=("1025",)),))


def main() -> None:
    job = join()
    gradient = torch.ones(1024)
    for step in range(100):
        time.sleep(STEP_S)
        if step == 40 and job.rank == 2:
            job.mark_fault()
            job.keep(dist.all_reduce(torch.ones(1025), async_op=job.late))
        else:
            job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()


if __name__ == "__main__":
    main()
