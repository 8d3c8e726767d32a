"""Rank 1 takes more memory than its container has, and the kernel kills it."""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, job_before_init, join

CASE = Case(
    (Truth(("dead",), culprits=(1,), causes=("oom",), says=("SIGKILL", "oom_kill")),),
    needs=("memory cgroup",),
)


def main() -> None:
    if job_before_init().rank == 1:
        (Path(os.environ["ZOO_CGROUP"]) / "cgroup.procs").write_text(str(os.getpid()))
    job = join()
    gradient, kept = torch.ones(1000), []
    for step in range(100):
        time.sleep(STEP_S)
        if step == 40 and job.rank == 1:
            job.mark_fault()
            kept += [torch.ones(2**25) for _ in range(8)]
        job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()


if __name__ == "__main__":
    main()
