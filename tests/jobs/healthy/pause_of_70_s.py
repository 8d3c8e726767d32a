"""All ranks poll for new data, and there is none for 70 s."""

import time

from zoo.rank import Case, join, truth

# It is the first pause of the job that frtop sees.
CASE = Case(lasts_s=90, allowed=(truth("undecided", progress="unknown"),))

job = join()
for odd in job.steps(count=10_000):
    if odd:
        time.sleep(70)
    job.all_reduce()
