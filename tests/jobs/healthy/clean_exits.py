"""All ranks finish and end one by one, the last after 12 s of its own work."""

import time

import torch.distributed as dist

from zoo.rank import Case, join

CASE = Case(lasts_s=40)


job = join()
job.train(100)
if job.rank == 0:
    time.sleep(4)
dist.destroy_process_group()
if job.rank == 3:
    time.sleep(12)
