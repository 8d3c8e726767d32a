"""Not a deadlock: a stage with a receive posted early waits for a queue that stays empty."""

import queue

import torch
import torch.distributed as dist

from zoo.rank import fault, join

CASE = fault("not_entered", 3, "lock", ranks=6)


job = join()
activation, gradient = torch.ones(1000), torch.ones(1000)
batches: queue.SimpleQueue[int] = queue.SimpleQueue()
first, last = job.rank == 0, job.rank == job.world - 1
for step, _ in enumerate(job.steps(3)):
    posted = None if last else dist.irecv(gradient, job.rank + 1)
    if job.rank == 3:
        if step < 40:
            batches.put(step)
        batches.get()
    if not first:
        job.receive(activation, job.rank - 1)
    if posted is not None:
        job.send(activation, job.rank + 1)
        posted.wait()
    if not first:
        job.send(gradient, job.rank - 1)
