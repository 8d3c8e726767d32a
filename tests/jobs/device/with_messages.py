"""Rank 2 sleeps before an op of a group that had messages: its devices' counts tell nothing."""

import time

import torch
import torch.distributed as dist

from zoo import stand_in_nccl as nccl
from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join

CASE = Case((Truth(("not_entered",), culprits=(2,), causes=("sleeping",)),), modes=("sync",))


def main() -> None:
    nccl.install()
    job = join()
    gradient = nccl.tensor()
    for step in range(10_000):
        time.sleep(STEP_S)
        if step == 60 and job.rank == 2:
            job.mark_fault()
            time.sleep(10_000)
        if job.rank in (0, 1):
            (dist.send if job.rank else dist.recv)(gradient, 1 - job.rank)
        dist.all_reduce(gradient)
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
