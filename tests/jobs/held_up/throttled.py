"""Rank 1 has 1 % of a core, as in a container with a much too low limit."""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join

CASE = Case(
    (Truth(("not_entered",), culprits=(1,), causes=("computing",), progress=("active",)),),
    needs=("cpu cgroup",),
)


def main() -> None:
    job = join()
    gradient = torch.ones(1000)
    for step in range(100):
        time.sleep(STEP_S)
        if step == 40 and job.rank == 1:
            job.mark_fault()
            (Path(os.environ["ZOO_CGROUP"]) / "cgroup.procs").write_text(str(os.getpid()))
            matrix = torch.rand(200, 200)
            for _ in range(10**6):
                matrix = torch.tanh(matrix @ matrix)
        job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()


if __name__ == "__main__":
    main()
