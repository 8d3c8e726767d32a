"""An extension of rank 3 calls abort(), which raises the same signal as gloo."""

import os

from zoo.rank import fault, join

CASE = fault("dead", 3, "signal", says="SIGABRT")

job = join()
for odd in job.steps(3):
    if odd:
        os.abort()
    job.all_reduce()
