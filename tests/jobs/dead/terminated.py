"""Another process sends SIGTERM to rank 2 only."""

import os
import signal
import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join

CASE = Case((Truth(("dead",), culprits=(2,), causes=("signal",), says=("SIGTERM",)),))


def main() -> None:
    job = join()
    gradient = torch.ones(1000)
    for step in range(100):
        time.sleep(STEP_S)
        if step == 40 and job.rank == 2:
            job.mark_fault()
            os.kill(os.getpid(), signal.SIGTERM)
        job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()


if __name__ == "__main__":
    main()
