"""Rank 2 has no recorder, and sleeps where the others reduce; frtop cannot see what it does."""

import time

import frtop_probe
from zoo.rank import fault, job_before_init, join

CASE = fault(
    "undecided",
    progress="unknown",
    says="rank 2 cannot be seen",
    suspected="frtop cannot see rank 2",
    needs=("recorder",),
)

if job_before_init().rank == 2:
    frtop_probe.stop()
job = join()
for odd in job.steps(2):
    if odd:
        time.sleep(3600)
    job.all_reduce()
