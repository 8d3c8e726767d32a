"""Tensor, data and pipeline parallel over 8 ranks: one sleeps, and all others wait in a chain.

Rank 5 does not enter its tensor group. So rank 4 waits there, ranks 0 and 1 wait for the
gradients of their second stages, and all others wait in data groups for one of these.
"""

import time

import torch
import torch.distributed as dist

from zoo.rank import Job, fault, join

CASE = fault(
    "not_entered",
    5,
    "sleeping",
    says=("of tensor", "of data", "recv from rank 4"),
    ranks=8,
    within_s=40,
)
STAGE = 4
"""Ranks 0-3 are the first stage of the pipeline, 4-7 the second."""


def own_group(job: Job, members: list[list[int]], name: str) -> dist.ProcessGroup:
    """Creates all of these groups, and returns the group of this rank."""
    groups = [dist.new_group(ranks, group_desc=name) for ranks in members]
    return next(g for g, ranks in zip(groups, members, strict=True) if job.rank in ranks)


job = join()
tensor = own_group(job, [[0, 1], [2, 3], [4, 5], [6, 7]], "tensor")
data = own_group(job, [[0, 2], [1, 3], [4, 6], [5, 7]], "data")
activation, gradient = torch.ones(1000), torch.ones(1000)
for odd in job.steps(5, at=25):
    if job.rank >= STAGE:
        job.receive(activation, job.rank - STAGE)
    if odd:
        time.sleep(3600)
    job.all_reduce(activation, tensor)
    if job.rank < STAGE:
        job.send(activation, job.rank + STAGE)
        job.receive(gradient, job.rank + STAGE)
    job.all_reduce(gradient, tensor)
    if job.rank >= STAGE:
        job.send(gradient, job.rank - STAGE)
    job.all_reduce(gradient, data)
