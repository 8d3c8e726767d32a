"""Rank 1 reads the output of a subprocess that never ends."""

import subprocess
import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join

CASE = Case(
    (Truth(("not_entered",), culprits=(1,), causes=("subprocess",), says=("(sleep)",)),),
)


def main() -> None:
    job = join()
    gradient = torch.ones(1000)
    for step in range(100):
        time.sleep(STEP_S)
        if step == 40 and job.rank == 1:
            job.mark_fault()
            subprocess.run(["sleep", "3600"], capture_output=True, check=True)
        job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()


if __name__ == "__main__":
    main()
