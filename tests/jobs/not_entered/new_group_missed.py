"""Rank 3 does not call new_group, which all ranks must call, and continues training."""

import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join

# The whole world must call new_group; one rank of four has not, and waits elsewhere.
CASE = Case(
    (
        Truth(
            ("cycle",),
            culprits=(3,),
            causes=("cycle",),
            says=("new_group",),
        ),
    ),
    within_s=50,
)


def main() -> None:
    job = join()
    gradient = torch.ones(1000)
    for step in range(100):
        time.sleep(STEP_S)
        if step == 40:
            job.mark_fault()
            if job.rank < 3:
                dist.new_group()
        job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()


if __name__ == "__main__":
    main()
