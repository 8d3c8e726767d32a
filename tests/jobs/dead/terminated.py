"""Another process sends SIGTERM to rank 2 only."""

import os
import signal

from zoo.rank import fault, join

CASE = fault("dead", 2, "signal", says="SIGTERM")

job = join()
for odd in job.steps(2):
    if odd:
        os.kill(os.getpid(), signal.SIGTERM)
    job.all_reduce()
