"""Ranks synchronise by store keys; rank 3 sleeps before its own, and only rank 0 continues."""

import time

import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import join

CASE = Case((Truth(("not_entered",), culprits=(3,), causes=("sleeping",)),))

job = join()
store = dist.distributed_c10d._get_default_store()
for step, odd in enumerate(job.steps(3)):
    if odd:
        time.sleep(3600)
    store.set(f"{step}.{job.rank}", "ready")
    if job.rank != 0:
        store.wait([f"{step}.{rank}" for rank in range(job.world)])
    job.all_reduce()
