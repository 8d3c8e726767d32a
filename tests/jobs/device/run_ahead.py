"""Nothing is wrong: hosts are hundreds of ops ahead of their devices, which take their time."""

import time

import torch
import torch.distributed as dist

from zoo import stand_in_nccl as nccl
from zoo.rank import Case, join

CASE = Case(lasts_s=25)

nccl.install()
job = join()
gradient = nccl.tensor()
nccl.device_of().delay_s = 0.01
for _ in range(60):
    for _ in range(200):
        job.keep(dist.all_reduce(gradient, async_op=job.late))
    job.wait()
    torch.cuda.synchronize()
    time.sleep(0.2)
