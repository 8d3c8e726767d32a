"""Rank 2 expects less from all others than they send; gloo aborts."""

import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join

CASE = Case(
    (Truth(("mismatch",), culprits=(2,), causes=("mismatch",), says=("splits",)),),
)


def main() -> None:
    job = join()
    for step in range(100):
        time.sleep(STEP_S)
        sends, takes = [2] * job.world, [2] * job.world
        if step == 40 and job.rank == 2:
            job.mark_fault()
            takes = [1, 1, 2, 1]
        tokens, taken = torch.ones(sum(sends)), torch.empty(sum(takes))
        job.keep(dist.all_to_all_single(taken, tokens, takes, sends, async_op=job.late))
        job.wait()


if __name__ == "__main__":
    main()
