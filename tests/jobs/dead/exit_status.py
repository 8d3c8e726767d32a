"""Rank 2 finds its configuration wrong and ends with sys.exit(3)."""

import sys

from zoo.rank import fault, join

CASE = fault("dead", 2, "exit_status", says="exit status 3")

job = join()
for odd in job.steps(2):
    if odd:
        sys.exit(3)
    job.all_reduce()
