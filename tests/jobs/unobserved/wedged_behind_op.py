"""Ranks 0-2 wedge in a transport past c10d, and rank 3 waits for them in an all_reduce."""

from zoo.rank import fault, join
from zoo.transport import Transport

CASE = fault("undecided", causes="unobserved", progress="unknown", says="DeepEP")

job = join()
transport = Transport(job)
for odd in job.steps():
    transport.replay()
    if odd:
        if job.rank == 2:
            transport.receive(3)
        elif job.rank < 2:
            transport.spin_for(2)
    job.all_reduce()
