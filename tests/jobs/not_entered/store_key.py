"""Ranks synchronise by store keys; rank 3 sleeps before its own, and only rank 0 continues."""

import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join

CASE = Case((Truth(("not_entered",), culprits=(3,), causes=("sleeping",)),))


def main() -> None:
    job = join()
    store = dist.distributed_c10d._get_default_store()
    gradient = torch.ones(1000)
    for step in range(100):
        time.sleep(STEP_S)
        if step == 40 and job.rank == 3:
            job.mark_fault()
            time.sleep(3600)
        store.set(f"{step}.{job.rank}", "ready")
        if job.rank != 0:
            store.wait([f"{step}.{rank}" for rank in range(job.world)])
        job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()


if __name__ == "__main__":
    main()
