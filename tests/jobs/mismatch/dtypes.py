"""Rank 2 reduces float64 where the others reduce float32; gloo aborts."""

import torch

from zoo.rank import fault, join

CASE = fault("mismatch", 2, "mismatch", says="float64")

job = join()
gradient = torch.ones(1000)
for odd in job.steps(2):
    job.all_reduce(gradient.double() if odd else gradient)
