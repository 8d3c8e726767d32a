"""Two neighbours receive from each other before they send; the other ranks wait for them."""

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import Job, join

CASE = Case((Truth(("cycle",), parties=((0,), (1,)), causes=("cycle",)),))


def exchange(
    job: Job, peer: int, mine: torch.Tensor, theirs: torch.Tensor, *, receive_first: bool
) -> None:
    for receive in (receive_first, not receive_first):
        if job.late:
            job.keep(dist.irecv(theirs, peer) if receive else dist.isend(mine, peer))
            job.wait()
        elif receive:
            dist.recv(theirs, peer)
        else:
            dist.send(mine, peer)


job = join()
mine, theirs = torch.ones(1000), torch.empty(1000)
for odd in job.steps():
    polite = job.rank % 2 == 1
    if odd:
        polite = polite or job.rank == 0
    exchange(job, job.rank ^ 1, mine, theirs, receive_first=polite)
    job.all_reduce(mine)
