"""Not a deadlock: a stage with a receive posted early waits for a queue that stays empty."""

import queue
import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, Job, join

CASE = Case((Truth(("not_entered",), culprits=(3,), causes=("lock",)),), ranks=6)


def take(job: Job, tensor: torch.Tensor, peer: int) -> None:
    if job.late:
        job.keep(dist.irecv(tensor, peer))
        job.wait()
    else:
        dist.recv(tensor, peer)


def pass_on(job: Job, tensor: torch.Tensor, peer: int) -> None:
    if job.late:
        job.keep(dist.isend(tensor.clone(), peer))
        job.wait()
    else:
        dist.send(tensor.clone(), peer)


job = join()
activation, gradient = torch.ones(1000), torch.ones(1000)
batches: queue.SimpleQueue[int] = queue.SimpleQueue()
first, last = job.rank == 0, job.rank == job.world - 1
for step in range(100):
    time.sleep(STEP_S)
    posted = None if last else dist.irecv(gradient, job.rank + 1)
    if job.rank == 3:
        if step < 40:
            batches.put(step)
        else:
            job.mark_fault()
        batches.get()
    if not first:
        take(job, activation, job.rank - 1)
    if posted is not None:
        pass_on(job, activation, job.rank + 1)
        posted.wait()
    if not first:
        pass_on(job, gradient, job.rank - 1)
