"""Two neighbours receive from each other before they send; the other ranks wait for them."""

import torch

from zoo.rank import fault, join

CASE = fault("deadlock", causes="deadlock", parties=((0,), (1,)))


job = join()
mine, theirs = torch.ones(1000), torch.empty(1000)
for odd in job.steps():
    polite = job.rank % 2 == 1 or (odd and job.rank == 0)
    if polite:
        job.receive(theirs, job.rank ^ 1)
    job.send(mine, job.rank ^ 1)
    if not polite:
        job.receive(theirs, job.rank ^ 1)
    job.all_reduce(mine)
