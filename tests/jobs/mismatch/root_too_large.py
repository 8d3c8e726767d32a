"""The root broadcasts more elements than the others receive; gloo aborts all but the root."""

import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join

CASE = Case((Truth(("mismatch",), culprits=(0,), causes=("mismatch",), says=("2048",)),))


def main() -> None:
    job = join()
    weights = torch.ones(1024)
    for step in range(100):
        time.sleep(STEP_S)
        if step == 40 and job.rank == 0:
            job.mark_fault()
            job.keep(dist.broadcast(torch.ones(2048), src=0, async_op=job.late))
        else:
            job.keep(dist.broadcast(weights, src=0, async_op=job.late))
        job.wait()


if __name__ == "__main__":
    main()
