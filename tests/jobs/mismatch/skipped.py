"""Rank 1 skips one of two unequal reductions; all later ops are shifted, and gloo aborts."""

import time

import torch
import torch.distributed as dist

from zoo.ground_truth import fault
from zoo.rank import STEP_S, join

CASE = fault("mismatch", 1, "mismatch")


def main() -> None:
    job = join()
    weight, bias = torch.ones(900), torch.ones(30)
    for step in range(100):
        time.sleep(STEP_S)
        if step == 40 and job.rank == 1:
            job.mark_fault()
        else:
            job.keep(dist.all_reduce(weight, async_op=job.late))
        job.keep(dist.all_reduce(bias, async_op=job.late))
        job.wait()


if __name__ == "__main__":
    main()
