"""Rank 2 has no recorder, and sleeps where the others reduce; frtop cannot see what it does."""

import time

import torch
import torch.distributed as dist

import frtop_probe
from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, job_before_init, join

CASE = Case(
    (
        Truth(
            ("undecided",),
            progress=("unknown",),
            says=("rank 2 cannot be seen",),
            suspected="frtop cannot see rank 2",
        ),
    ),
    needs=("recorder",),
)


def main() -> None:
    if job_before_init().rank == 2:
        frtop_probe.stop()
    job = join()
    gradient = torch.ones(1000)
    for step in range(100):
        time.sleep(STEP_S)
        if step == 40 and job.rank == 2:
            job.mark_fault()
            time.sleep(3600)
        job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()


if __name__ == "__main__":
    main()
