"""Two ranks of one group do not enter an op, each for another reason."""

import time

from zoo.ground_truth import Case, truth
from zoo.rank import STEP_S, join

CASE = Case((truth("not_entered", 1, "sleeping"), truth("not_entered", 3, "file_io")))

job = join()
pipe = job.pipe("shard")
for step in range(100):
    time.sleep(STEP_S)
    if step == 40 and job.rank == 1:
        job.mark_fault()
        time.sleep(3600)
    if step == 40 and job.rank == 3:
        job.mark_fault()
        pipe.read_bytes()
    job.all_reduce()
