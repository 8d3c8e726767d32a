"""All ranks hand an op to their devices, and that of rank 1 does not come to it."""

import torch
import torch.distributed as dist

from zoo import stand_in_nccl as nccl
from zoo.rank import fault, join, truth

# The stand-in's device is a thread, which is seen to be in no op if nothing is recorded.
CASE = fault(
    "stuck", causes="device", says="on the devices", allowed=(truth("not_entered", 1, "lock"),)
)

nccl.install()
job = join()
gradient = nccl.tensor()
for odd in job.steps(1, at=60, count=10_000):
    if odd:
        nccl.device_of().delay_s = 10_000
    for _ in range(3):
        job.keep(dist.all_reduce(gradient, async_op=job.late))
    job.wait()
    torch.cuda.synchronize()
