"""Not a deadlock: a stage with a receive posted early is stuck while it loads data."""

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from zoo.rank import Job, fault, join
from zoo.steps import Samples

CASE = fault("not_entered", 0, "dataloader", ranks=3)


def first_stage(job: Job) -> None:
    """Posts the receive of each gradient before the batch is loaded."""
    samples = Samples(40, job.pipe("shard").read_bytes)
    loader = DataLoader(samples, batch_size=1, num_workers=1)
    batches = iter(loader)
    for _ in job.steps():
        gradient = torch.empty(1000)
        posted = dist.irecv(gradient, 1)
        (activation,) = next(batches)
        job.send(activation, 1)
        assert posted is not None
        posted.wait()


def later_stage(job: Job) -> None:
    activation = torch.empty(1000)
    last = job.rank == job.world - 1
    for _ in range(100):
        gradient = torch.ones(1000)
        posted = None if last else dist.irecv(gradient, job.rank + 1)
        job.receive(activation, job.rank - 1)
        if posted is not None:
            job.send(activation, job.rank + 1)
            posted.wait()
        job.send(gradient, job.rank - 1)


job = join()
if job.rank == 0:
    first_stage(job)
else:
    later_stage(job)
