"""One of two ranks calls barrier where the other reduces; no evidence shows which is right."""

import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join

CASE = Case(
    (Truth(("mismatch",), parties=((0,), (1,)), causes=("mismatch",), says=("barrier",)),), ranks=2
)


def main() -> None:
    job = join()
    gradient = torch.ones(1000)
    for step in range(100):
        time.sleep(STEP_S)
        if step == 40 and job.rank == 1:
            job.mark_fault()
            job.keep(dist.barrier(async_op=job.late))
        else:
            job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()


if __name__ == "__main__":
    main()
