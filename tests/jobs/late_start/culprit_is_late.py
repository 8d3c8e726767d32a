"""Recorder started late on rank 2, which then sleeps where the others reduce."""

import time

import frtop_probe
from zoo.rank import fault, job_before_init, join

CASE = fault("not_entered", 2, "sleeping", needs=("recorder",))

if job_before_init().rank == 2:
    frtop_probe.stop()
job = join()
for step, odd in enumerate(job.steps(2)):
    if step == 10 and job.rank == 2:
        frtop_probe.start()
    if odd:
        time.sleep(3600)
    job.all_reduce()
