"""Rank 1 passes 64 elements to an all_gather of 1024; gloo aborts."""

import torch
import torch.distributed as dist

from zoo.ground_truth import fault
from zoo.rank import join

CASE = fault("mismatch", 1, "mismatch", says="64")

job = join()
shard = torch.ones(1024)
shards = [torch.empty(1024) for _ in range(job.world)]
for odd in job.steps(1):
    if odd:
        job.keep(
            dist.all_gather(
                [torch.empty(64) for _ in range(job.world)], torch.ones(64), async_op=job.late
            )
        )
    else:
        job.keep(dist.all_gather(shards, shard, async_op=job.late))
    job.wait()
