"""Rank 1 reads the output of a subprocess that never ends."""

import subprocess

from zoo.ground_truth import Case, Truth
from zoo.rank import join

CASE = Case((Truth(("not_entered",), culprits=(1,), causes=("subprocess",), says=("(sleep)",)),))

job = join()
for odd in job.steps(1):
    if odd:
        subprocess.run(["sleep", "3600"], capture_output=True, check=True)
    job.all_reduce()
