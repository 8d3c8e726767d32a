"""Two ranks of one group do not enter an op, each for another reason."""

import time

from zoo.rank import Case, join, truth

CASE = Case((truth("not_entered", 1, "sleeping"), truth("not_entered", 3, "file_io")))

job = join()
pipe = job.pipe("shard")
for odd in job.steps(1, 3):
    if odd and job.rank == 1:
        time.sleep(3600)
    if odd:
        pipe.read_bytes()
    job.all_reduce()
