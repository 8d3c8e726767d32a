"""Another process kills rank 0 with SIGKILL."""

import os
import signal

from zoo.ground_truth import Case, Truth
from zoo.rank import join

CASE = Case((Truth(("dead",), culprits=(0,), causes=("signal",), says=("SIGKILL",)),))

job = join()
for odd in job.steps(0):
    if odd:
        os.kill(os.getpid(), signal.SIGKILL)
    job.all_reduce()
