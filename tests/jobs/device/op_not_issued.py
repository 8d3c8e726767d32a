"""Rank 2 sleeps before an op; the others have handed it to their devices, and wait for these."""

import time

import torch
import torch.distributed as dist

from zoo import stand_in_nccl as nccl
from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join

CASE = Case((Truth(("not_entered",), culprits=(2,), causes=("sleeping",)),), modes=("sync", "late"))


def main() -> None:
    nccl.install()
    job = join()
    gradient = nccl.tensor()
    for step in range(10_000):
        time.sleep(STEP_S)
        if step == 60 and job.rank == 2:
            job.mark_fault()
            time.sleep(10_000)
        for _ in range(3):
            job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
