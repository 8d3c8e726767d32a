"""All ranks hand an op to their devices, and that of rank 1 does not come to it."""

import time

import torch
import torch.distributed as dist

from zoo import stand_in_nccl as nccl
from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join

CASE = Case(
    (Truth(("stuck",), causes=("device",), says=("on the devices",)),), modes=("sync", "late")
)


def main() -> None:
    nccl.install()
    job = join()
    gradient = nccl.tensor()
    for step in range(10_000):
        time.sleep(STEP_S)
        if step == 60 and job.rank == 1:
            job.mark_fault()
            nccl.device_of().delay_s = 10_000
        for _ in range(3):
            job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
