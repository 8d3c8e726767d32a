"""Every rank receives from its left neighbour before it sends to its right neighbour."""

import torch

from zoo.rank import fault, join

CASE = fault("deadlock", causes="deadlock", parties=((0,), (1,), (2,), (3,)))


job = join()
mine, theirs = torch.ones(1000), torch.empty(1000)
left, right = (job.rank - 1) % job.world, (job.rank + 1) % job.world
for step, _ in enumerate(job.steps()):
    if job.rank == 0 and step < 40:
        job.send(mine, right)
        job.receive(theirs, left)
    else:
        job.receive(theirs, left)
        job.send(mine, right)
