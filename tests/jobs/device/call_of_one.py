"""The call of an op never returns on rank 1, as when its driver hangs; the others' have."""

import torch

from zoo import stand_in_nccl as nccl
from zoo.rank import fault, join

CASE = fault("stuck", 1, "device", says="inside the call")

nccl.install()
job = join()
gradient = nccl.tensor()
for odd in job.steps(1, at=60, count=10_000):
    if odd:
        nccl.device_of().call_s = 10_000.0
    job.all_reduce(gradient)
    torch.cuda.synchronize()
