"""Rank 2 reduces int32 where the others reduce float32, once."""

import torch

from zoo.rank import fault, join

CASE = fault(
    "mismatch",
    2,
    "mismatch",
    progress="active",
    says="int32",
    modes=("sync", "late", "sync slowly", "late slowly"),
)

job = join()
gradient = torch.ones(1000)
counts = torch.ones(1000, dtype=torch.int32)
for odd in job.paced():
    tensor = counts if odd and job.rank == 2 else gradient
    job.all_reduce(tensor)
