"""Recorder started late on rank 2, which then calls barrier where the others reduce."""

import torch.distributed as dist

import frtop_probe
from zoo.rank import fault, job_before_init, join

CASE = fault(
    "mismatch",
    2,
    "mismatch",
    says=("barrier", "all_reduce"),
    suspected="rank 2's numbers cannot be compared with those of the others",
    needs=("recorder",),
)

if job_before_init().rank == 2:
    frtop_probe.stop()
job = join()
for step, odd in enumerate(job.steps(2)):
    if step == 10 and job.rank == 2:
        frtop_probe.start()
    if odd:
        job.call(dist.barrier)
    else:
        job.all_reduce()
