"""Rank 2 sleeps: it enters neither a transport past c10d, where 0-1 spin, nor an all_reduce."""

import time

from zoo.rank import fault, join
from zoo.transport import Transport

CASE = fault("not_entered", 2, "sleeping")

job = join()
transport = Transport(job)
for odd in job.steps():
    transport.replay()
    if odd:
        if job.rank == 2:
            time.sleep(3600)
        elif job.rank < 2:
            transport.spin_for(2)
    job.all_reduce()
