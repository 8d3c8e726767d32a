"""Rank 1 waits for a store key that no rank sets."""

import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join

CASE = Case((Truth(("not_entered",), culprits=(1,), causes=("store",)),))


def main() -> None:
    job = join()
    store = dist.distributed_c10d._get_default_store()
    gradient = torch.ones(1000)
    for step in range(100):
        time.sleep(STEP_S)
        if step == 40 and job.rank == 1:
            job.mark_fault()
            store.wait(["vocabulary"])
        job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()


if __name__ == "__main__":
    main()
