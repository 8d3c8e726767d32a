"""Rank 2 is in the all_reduce before all others, and is stopped there by a SIGSTOP."""

import os
import signal
import threading
import time

import torch
import torch.distributed as dist

from zoo.rank import STEP_S, Job, join
from zoo.truth import Case, Truth

CASE = Case((Truth(("stuck",), culprits=(2,), causes=("stopped",), says=("kill -CONT",)),))


def stop(job: Job) -> None:
    job.frozen()
    os.kill(os.getpid(), signal.SIGSTOP)


def main() -> None:
    job = join()
    gradient = torch.ones(1000)
    for step in range(100):
        time.sleep(STEP_S)
        if step == 40 and job.rank == 2:
            threading.Timer(0.5, stop, (job,)).start()
        elif step == 40:
            time.sleep(1.5)
        job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()


if __name__ == "__main__":
    main()
