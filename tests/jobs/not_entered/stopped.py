"""Another process sends SIGSTOP to rank 2."""

import os
import signal

from zoo.rank import fault, join

CASE = fault("not_entered", 2, "stopped", says="kill -CONT")

job = join()
for odd in job.steps(2):
    if odd:
        os.kill(os.getpid(), signal.SIGSTOP)
    job.all_reduce()
