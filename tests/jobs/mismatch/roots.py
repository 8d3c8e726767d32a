"""Rank 2 passes itself as the root of a broadcast."""

import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join

CASE = Case((Truth(("mismatch",), culprits=(2,), causes=("mismatch",), says=("root 2",)),))


def main() -> None:
    job = join()
    weights, loss = torch.ones(1000), torch.ones(1)
    for step in range(100):
        time.sleep(STEP_S)
        job.keep(dist.all_reduce(loss, async_op=job.late))
        source = 0
        if step == 40 and job.rank == 2:
            job.mark_fault()
            source = 2
        job.keep(dist.broadcast(weights, src=source, async_op=job.late))
        job.wait()


if __name__ == "__main__":
    main()
