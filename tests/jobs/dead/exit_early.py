"""Rank 1 ends with sys.exit(0) while the others train."""

import sys

from zoo.rank import fault, join

CASE = fault("dead", 1, "exited")

job = join()
for odd in job.steps(1):
    if odd:
        sys.exit(0)
    job.all_reduce()
