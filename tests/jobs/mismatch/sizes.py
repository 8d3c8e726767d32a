"""Rank 2 reduces 1025 elements where the others reduce 1024; gloo aborts."""

import torch

from zoo.rank import fault, join

CASE = fault("mismatch", 2, "mismatch", says="1025")

job = join()
gradient = torch.ones(1024)
for odd in job.steps(2):
    job.all_reduce(torch.ones(1025) if odd else gradient)
