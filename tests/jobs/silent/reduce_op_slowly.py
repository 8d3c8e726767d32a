"""Rank 2 takes the maximum where the others add, once, in steps of a second."""

import time

import torch
import torch.distributed as dist

from zoo.rank import join
from zoo.truth import Case, Truth

CASE = Case(
    (
        Truth(
            ("mismatch",),
            culprits=(2,),
            causes=("mismatch",),
            progress=("active",),
            says=("max",),
        ),
    ),
)


def main() -> None:
    job = join()
    gradient = torch.ones(1000)
    for step in range(100):
        time.sleep(0.2 if step < 12 else 1.0)
        odd = step == 15
        if odd:
            job.frozen()
        reduce = dist.ReduceOp.MAX if odd and job.rank == 2 else dist.ReduceOp.SUM
        job.keep(dist.all_reduce(gradient, op=reduce, async_op=job.late))
        job.wait()


if __name__ == "__main__":
    main()
