"""Rank 1 reads the output of a subprocess that never ends."""

import subprocess

from zoo.rank import fault, join

CASE = fault("not_entered", 1, "subprocess", says="(sleep)")

job = join()
for odd in job.steps(1):
    if odd:
        subprocess.run(["sleep", "3600"], capture_output=True, check=True)
    job.all_reduce()
