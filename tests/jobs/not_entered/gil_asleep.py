"""Rank 1 sleeps in C and never releases the GIL."""

import ctypes

from zoo.rank import fault, join

CASE = fault("not_entered", 1, "gil")

job = join()
extension = ctypes.PyDLL(None)
for odd in job.steps(1):
    if odd:
        extension.sleep(3600)
    job.all_reduce()
