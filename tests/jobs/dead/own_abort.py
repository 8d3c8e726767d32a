"""An extension of rank 3 calls abort(), which raises the same signal as gloo."""

import os

from zoo.ground_truth import Case, Truth
from zoo.rank import join

CASE = Case((Truth(("dead",), culprits=(3,), causes=("signal",), says=("SIGABRT",)),))

job = join()
for odd in job.steps(3):
    if odd:
        os.abort()
    job.all_reduce()
