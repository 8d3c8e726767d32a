"""Rank 3 raises an uncaught ValueError."""

import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join

CASE = Case(
    (
        Truth(
            ("dead",),
            culprits=(3,),
            causes=("exception",),
            says=("ValueError: label 1001 of 1000",),
        ),
    )
)


def main() -> None:
    job = join()
    gradient = torch.ones(1000)
    for step in range(100):
        time.sleep(STEP_S)
        if step == 40 and job.rank == 3:
            job.mark_fault()
            raise ValueError("label 1001 of 1000")
        job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()


if __name__ == "__main__":
    main()
