"""Rank 2 computes 40 ms longer than the others in every step."""

from zoo.rank import join, slow
from zoo.steps import spin, training

CASE = slow(2, says="all_reduce", late_ms=40)

job = join()
for _ in training():
    if job.rank == 2:
        job.mark_fault()
        spin(0.04)
