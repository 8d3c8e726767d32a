"""Not slow: work depends on the length of each rank's own samples, and evens out."""

import random
import time

from zoo.rank import Case, join
from zoo.steps import WORK_S, training

CASE = Case(modes=("sync",), lasts_s=14)

job = join()
samples = random.Random(job.rank)
for _ in training(work_s=0):
    time.sleep(min(0.5, samples.expovariate(1 / WORK_S)))
