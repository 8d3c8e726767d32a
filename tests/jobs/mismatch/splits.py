"""Rank 2 expects less from rank 1 than rank 1 sends; gloo aborts, and either may be wrong."""

import torch
import torch.distributed as dist

from zoo.rank import fault, join

CASE = fault("mismatch", causes="mismatch", parties=((1,), (2,)), says="splits")

job = join()
for odd in job.steps(2):
    sends, takes = [2, 2, 2, 2], [2, 1 if odd else 2, 2, 2]
    tokens, taken = torch.ones(sum(sends)), torch.empty(sum(takes))
    job.call(dist.all_to_all_single, taken, tokens, takes, sends)
