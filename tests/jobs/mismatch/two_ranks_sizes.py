"""One of two ranks reduces more elements; gloo aborts, and no evidence shows which is right."""

import torch

from zoo.rank import fault, join

CASE = fault("mismatch", causes="mismatch", parties=((0,), (1,)), says="1025", ranks=2)

job = join()
gradient = torch.ones(1024)
for odd in job.steps(1):
    job.all_reduce(torch.ones(1025) if odd else gradient)
