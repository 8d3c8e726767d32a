"""Recorder started late on rank 2, which waits, like the others, for rank 1, which sleeps."""

import time

import frtop_probe
from zoo.rank import fault, job_before_init, join

CASE = fault("not_entered", 1, "sleeping", needs=("recorder",))

if job_before_init().rank == 2:
    frtop_probe.stop()
job = join()
for step, odd in enumerate(job.steps(1)):
    if step == 10 and job.rank == 2:
        frtop_probe.start()
    if odd:
        time.sleep(3600)
    job.all_reduce()
