"""Rank 2 reduces with MAX where the others use SUM, once."""

import torch
import torch.distributed as dist

from zoo.rank import fault, join

CASE = fault(
    "mismatch",
    2,
    "mismatch",
    progress="active",
    says="max",
    modes=("sync", "late", "sync slowly", "late slowly"),
)

job = join()
gradient = torch.ones(1000)
for odd in job.paced():
    reduce = dist.ReduceOp.MAX if odd and job.rank == 2 else dist.ReduceOp.SUM
    job.call(dist.all_reduce, gradient, op=reduce)
