"""The call of an op never returns on rank 1, as when its driver hangs; the others' have."""

import time

import torch
import torch.distributed as dist

from zoo import stand_in_nccl as nccl
from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join

CASE = Case(
    (Truth(("stuck",), culprits=(1,), causes=("device",), says=("inside the call",)),),
    modes=("sync", "late"),
)


def main() -> None:
    nccl.install()
    job = join()
    gradient = nccl.tensor()
    for step in range(10_000):
        time.sleep(STEP_S)
        if step == 60 and job.rank == 1:
            job.mark_fault()
            nccl.device_of().call_s = 10_000.0
        job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
