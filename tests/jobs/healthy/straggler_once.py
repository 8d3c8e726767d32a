"""Rank 2 computes 20 times longer than usual in a single step."""

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import join
from zoo.work import compute

CASE = Case(
    lasts_s=25,
    allowed=(
        Truth(
            ("not_entered",), culprits=(2,), causes=("computing",), progress=("active", "unknown")
        ),
    ),
)


def main() -> None:
    job = join()
    gradient = torch.ones(1000)
    for step in range(80):
        if step == 40 and job.rank == 2:
            job.mark_fault()
            compute(4.0)
        compute(0.2, share=0.3)
        job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()


if __name__ == "__main__":
    main()
