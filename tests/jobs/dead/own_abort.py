"""An extension of rank 3 calls abort(), which raises the same signal as gloo."""

import os
import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join

CASE = Case((Truth(("dead",), culprits=(3,), causes=("signal",), says=("SIGABRT",)),))


def main() -> None:
    job = join()
    gradient = torch.ones(1000)
    for step in range(100):
        time.sleep(STEP_S)
        if step == 40 and job.rank == 3:
            job.mark_fault()
            os.abort()
        job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()


if __name__ == "__main__":
    main()
