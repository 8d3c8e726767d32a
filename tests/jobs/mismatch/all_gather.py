"""Rank 2 calls all_gather where the others call all_reduce."""

import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join

CASE = Case((Truth(("mismatch",), culprits=(2,), causes=("mismatch",), says=("all_gather",)),))


def main() -> None:
    job = join()
    gradient = torch.ones(1000)
    shards = [torch.empty(1000) for _ in range(job.world)]
    for step in range(100):
        time.sleep(STEP_S)
        if step == 40 and job.rank == 2:
            job.mark_fault()
            job.keep(dist.all_gather(shards, gradient, async_op=job.late))
        else:
            job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()


if __name__ == "__main__":
    main()
