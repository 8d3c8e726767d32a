"""Every step takes a second."""

import time

from zoo.rank import Case, join

CASE = Case(lasts_s=15)

job = join()
for _ in range(100):
    time.sleep(1.0)
    job.all_reduce()
