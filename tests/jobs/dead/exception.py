"""Rank 3 raises an uncaught ValueError."""

from zoo.rank import fault, join

CASE = fault("dead", 3, "exception", says="ValueError: label 1001 of 1000")

job = join()
for odd in job.steps(3):
    if odd:
        raise ValueError("label 1001 of 1000")
    job.all_reduce()
