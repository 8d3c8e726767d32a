"""Rank 1 sleeps 30 ms in every step, and nothing but many looks at its stack shows it."""

import time

from zoo.rank import join, slow
from zoo.steps import training

CASE = slow(1, "sleeping", says="it sleeps at sleeping.py", late_ms=30)

job = join()
for _ in training():
    if job.rank == 1:
        job.mark_fault()
        time.sleep(0.03)
