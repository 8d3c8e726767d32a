"""Rank 2 expects less from all others than they send; gloo aborts."""

import torch
import torch.distributed as dist

from zoo.rank import fault, join

CASE = fault("mismatch", 2, "mismatch", says="splits")

job = join()
for odd in job.steps(2):
    sends, takes = [2, 2, 2, 2], [1, 1, 2, 1] if odd else [2, 2, 2, 2]
    tokens, taken = torch.ones(sum(sends)), torch.empty(sum(takes))
    job.call(dist.all_to_all_single, taken, tokens, takes, sends)
