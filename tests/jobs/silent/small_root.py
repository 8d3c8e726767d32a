"""The root broadcasts fewer elements than the others receive, once."""

import torch
import torch.distributed as dist

from zoo.rank import fault, join

CASE = fault(
    "mismatch",
    0,
    "mismatch",
    progress="active",
    says="512",
    modes=("sync", "late", "sync slowly", "late slowly"),
)

job = join()
weights = torch.ones(1024)
total = torch.ones(1)
for odd in job.paced():
    tensor = weights[:512] if odd and job.rank == 0 else weights
    job.call(dist.broadcast, tensor, src=0)
    job.all_reduce(total)
