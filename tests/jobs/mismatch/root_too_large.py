"""The root broadcasts more elements than the others receive; gloo aborts all but the root."""

import torch
import torch.distributed as dist

from zoo.rank import fault, join

CASE = fault("mismatch", 0, "mismatch", says="2048")

job = join()
weights = torch.ones(1024)
for odd in job.steps(0):
    job.call(dist.broadcast, torch.ones(2048) if odd else weights, src=0)
