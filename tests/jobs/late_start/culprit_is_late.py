"""Recorder started late on rank 2, which then sleeps where the others reduce."""

import time

import torch
import torch.distributed as dist

import frtop_probe
from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, job_before_init, join

CASE = Case(
    (Truth(("not_entered",), culprits=(2,), causes=("sleeping",)),),
    needs=("recorder",),
)


def main() -> None:
    if job_before_init().rank == 2:
        frtop_probe.stop()
    job = join()
    gradient = torch.ones(1000)
    for step in range(100):
        time.sleep(STEP_S)
        if step == 10 and job.rank == 2:
            frtop_probe.start()
        if step == 40 and job.rank == 2:
            job.mark_fault()
            time.sleep(3600)
        job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()


if __name__ == "__main__":
    main()
