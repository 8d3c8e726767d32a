"""Another process kills rank 0 with SIGKILL."""

import os
import signal

from zoo.rank import fault, join

CASE = fault("dead", 0, "signal", says="SIGKILL")

job = join()
for odd in job.steps(0):
    if odd:
        os.kill(os.getpid(), signal.SIGKILL)
    job.all_reduce()
