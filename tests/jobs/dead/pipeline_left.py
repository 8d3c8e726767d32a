"""The last stage of a pipeline has too few batches and ends; the others lose connections."""

import torch
import torch.distributed as dist

from zoo.rank import fault, join

CASE = fault("dead", 2, "exited", ranks=3, modes=("sync",))


job = join()
activation = torch.ones(1_000_000)
for odd in job.steps(2):
    if odd:
        break
    if job.rank > 0:
        dist.recv(activation, job.rank - 1)
    if job.rank < 2:
        dist.send(activation, job.rank + 1)
