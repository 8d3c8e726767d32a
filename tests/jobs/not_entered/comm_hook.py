"""DDP reduces by a hook of the program's, which sleeps in rank 1."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from zoo.rank import Job, fault, join

CASE = fault("not_entered", 1, "sleeping", says="comm_hook.py", modes=("sync",))

odd = False


def reduce(job: Job, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    if odd:
        time.sleep(600)
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(lambda done: done.value()[0] / job.world)


job = join()
model = DistributedDataParallel(nn.Linear(100, 100))
model.register_comm_hook(job, reduce)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for odd in job.steps(1):  # noqa: B007 - the hook reads it
    model(torch.ones(10, 100)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
