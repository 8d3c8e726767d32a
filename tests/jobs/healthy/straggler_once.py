"""Rank 2 computes 20 times longer than usual in a single step."""

from zoo.rank import Case, join, truth
from zoo.work import compute

CASE = Case(
    lasts_s=25, allowed=(truth("not_entered", 2, "computing", progress=("active", "unknown")),)
)

job = join()
for step in range(80):
    if step == 40 and job.rank == 2:
        job.mark_fault()
        compute(4.0)
    compute(0.2, share=0.3)
    job.all_reduce()
