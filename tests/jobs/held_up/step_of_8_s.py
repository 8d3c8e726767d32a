"""One rank needs 8 s for a step that usually takes 6 s; no rank hangs.

A verdict may only say that the others wait for rank 1, which computes.
"""

from zoo.rank import Case, join, truth
from zoo.work import compute

CASE = Case(
    lasts_s=50,
    allowed=(truth("not_entered", 1, ("computing", "sleeping"), progress=("active", "unknown")),),
)

job = join()
for step in range(8):
    odd = step == 5 and job.rank == 1
    if odd:
        job.mark_fault()
    compute(8.0 if odd else 6.0, share=0.2)
    job.all_reduce()
