"""Rank 1 waits for a store key that no rank sets."""

import torch.distributed as dist

from zoo.rank import fault, join

CASE = fault("not_entered", 1, "store")

job = join()
store = dist.distributed_c10d._get_default_store()
for odd in job.steps(1):
    if odd:
        store.wait(["vocabulary"])
    job.all_reduce()
