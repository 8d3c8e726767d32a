"""Rank 2 never enters a call of a transport past c10d, and sleeps in C; the others spin in it."""

from zoo.rank import fault, join
from zoo.transport import Transport

CASE = fault("undecided", causes="unobserved", progress="unknown", says="DeepEP", within_s=75)

job = join()
transport = Transport(job)
for odd in job.steps():
    job.all_reduce()
    if odd:
        transport.receive(3) if job.rank == 2 else transport.spin_for(2)
    transport.replay()
