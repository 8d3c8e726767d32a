"""Every rank receives from its left neighbour before it sends to its right neighbour."""

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import join

CASE = Case((Truth(("cycle",), parties=((0,), (1,), (2,), (3,)), causes=("cycle",)),))


def send(tensor: torch.Tensor, peer: int, *, late: bool) -> None:
    if late:
        work = dist.isend(tensor, peer)
        assert work is not None
        work.wait()
    else:
        dist.send(tensor, peer)


def receive(tensor: torch.Tensor, peer: int, *, late: bool) -> None:
    if late:
        work = dist.irecv(tensor, peer)
        assert work is not None
        work.wait()
    else:
        dist.recv(tensor, peer)


job = join()
mine, theirs = torch.ones(1000), torch.empty(1000)
left, right = (job.rank - 1) % job.world, (job.rank + 1) % job.world
for step, _ in enumerate(job.steps()):
    if job.rank == 0 and step < 40:
        send(mine, right, late=job.late)
        receive(theirs, left, late=job.late)
    else:
        receive(theirs, left, late=job.late)
        send(mine, right, late=job.late)
