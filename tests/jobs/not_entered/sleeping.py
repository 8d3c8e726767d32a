"""Rank 1 sleeps for an hour where the others reduce."""

import time

from zoo.ground_truth import Case, Truth
from zoo.rank import join

CASE = Case((Truth(("not_entered",), culprits=(1,), causes=("sleeping",)),))

job = join()
for odd in job.steps(1):
    if odd:
        time.sleep(3600)
    job.all_reduce()
