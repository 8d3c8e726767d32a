"""Ranks synchronise by store keys; rank 3 sleeps before its own, and only rank 0 continues."""

import time

import torch.distributed as dist

from zoo.rank import fault, join

CASE = fault("not_entered", 3, "sleeping")

job = join()
store = dist.distributed_c10d._get_default_store()
for step, odd in enumerate(job.steps(3)):
    if odd:
        time.sleep(3600)
    store.set(f"{step}.{job.rank}", "ready")
    if job.rank != 0:
        store.wait([f"{step}.{rank}" for rank in range(job.world)])
    job.all_reduce()
