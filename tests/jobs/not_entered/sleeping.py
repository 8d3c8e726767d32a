"""Rank 1 sleeps for an hour where the others reduce."""

import time

from zoo.rank import fault, join

CASE = fault("not_entered", 1, "sleeping")

job = join()
for odd in job.steps(1):
    if odd:
        time.sleep(3600)
    job.all_reduce()
