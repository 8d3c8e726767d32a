"""Rank 1 reads through a null pointer in C."""

import ctypes

from zoo.rank import fault, join

CASE = fault("dead", 1, "signal", says="SIGSEGV")

job = join()
for odd in job.steps(1):
    if odd:
        ctypes.string_at(0)
    job.all_reduce()
