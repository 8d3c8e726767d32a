"""Rank 1 destroys its process group while the others train, and continues its own cleanup."""

import threading

import torch.distributed as dist

from zoo.rank import fault, join

CASE = fault("not_entered", 1, "out_of_loop")


job = join()
for odd in job.steps(1):
    if odd:
        dist.destroy_process_group()
        threading.Event().wait()
    job.all_reduce()
