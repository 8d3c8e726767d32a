"""All ranks are done and leave; rank 3 has put more into a queue than anybody reads."""

import multiprocessing
import time

import torch.distributed as dist

from zoo.rank import STEP_S, fault, join

CASE = fault("stuck", 3, ("pipe", "lock"), says=("does not end", "QueueFeederThread"), within_s=100)

job = join()
samples = multiprocessing.Queue()
for _ in range(60):
    time.sleep(STEP_S)
    job.all_reduce()
    if job.rank == 3:
        samples.put(bytes(10_000))
dist.destroy_process_group()
job.mark_fault()
