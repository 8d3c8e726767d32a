"""A checkpoint gathers its shards inside `if rank == 0`; the others continue with all_reduce."""

import torch
import torch.distributed as dist

from zoo.rank import fault, join

CASE = fault("mismatch", 0, "mismatch", says="all_gather")

job = join()
model = torch.nn.Linear(30, 30)
for odd in job.steps(0, at=30):
    for parameter in model.parameters():
        job.keep(dist.all_reduce(parameter.data, async_op=job.late))
    job.wait()
    if odd:
        shards = [torch.empty_like(model.weight) for _ in range(job.world)]
        job.call(dist.all_gather, shards, model.weight.data)
        torch.save(shards, job.folder / "checkpoint.pt")
