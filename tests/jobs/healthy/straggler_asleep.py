"""Rank 2 waits 20 times longer than usual for its data in a single step."""

import time

from zoo.rank import Case, join, truth

# Active if the second look is just when it wakes up.
CASE = Case(
    lasts_s=40,
    allowed=(truth("not_entered", 2, "sleeping", progress=("none", "unknown", "active")),),
)

job = join()
for step in range(60):
    odd = step == 12 and job.rank == 2
    if odd:
        job.mark_fault()
    time.sleep(10.0 if odd else 0.5)
    job.all_reduce()
