"""Rank 1 waits for a message from rank 0; rank 0 and all others wait for rank 1's gradient."""

import torch
import torch.distributed as dist

from zoo.rank import fault, join

CASE = fault("deadlock", causes="deadlock", parties=((0, 2, 3), (1,)))

job = join()
gradient, message = torch.ones(1000), torch.ones(10)
for step, _ in enumerate(job.steps()):
    if job.rank == 0 and step < 40:
        dist.send(message, 1)
    elif job.rank == 1:
        job.receive(message, 0)
    job.all_reduce(gradient)
