"""Rank 1 waits for a store key that no rank sets."""

import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import join

CASE = Case((Truth(("not_entered",), culprits=(1,), causes=("store",)),))

job = join()
store = dist.distributed_c10d._get_default_store()
for odd in job.steps(1):
    if odd:
        store.wait(["vocabulary"])
    job.all_reduce()
