"""One of two ranks reduces more elements; gloo aborts, and no evidence shows which is right."""

import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join

CASE = Case(
    (Truth(("mismatch",), parties=((0,), (1,)), causes=("mismatch",), says=("1025",)),), ranks=2
)


def main() -> None:
    job = join()
    gradient = torch.ones(1024)
    for step in range(100):
        time.sleep(STEP_S)
        if step == 40 and job.rank == 1:
            job.mark_fault()
            job.keep(dist.all_reduce(torch.ones(1025), async_op=job.late))
        else:
            job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()


if __name__ == "__main__":
    main()
