"""Rank 2 expects more from rank 1 than rank 1 sends, once."""

import torch
import torch.distributed as dist

from zoo.rank import fault, join

CASE = fault(
    "mismatch",
    causes="mismatch",
    parties=((1,), (2,)),
    progress="active",
    says="splits",
    modes=("sync", "late", "sync slowly", "late slowly"),
)

job = join()
tokens = torch.ones(8)
for odd in job.paced():
    takes = [2, 3 if odd and job.rank == 2 else 2, 2, 2]
    taken = torch.empty(sum(takes))
    job.call(dist.all_to_all_single, taken, tokens, takes, [2] * 4)
