"""Rank 2 reduces int32 where the others reduce float32, once, in steps of a second."""

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
            says=("int32",),
        ),
    ),
)


def main() -> None:
    job = join()
    gradient = torch.ones(1000)
    counts = torch.ones(1000, dtype=torch.int32)
    for step in range(100):
        time.sleep(0.2 if step < 12 else 1.0)
        odd = step == 15
        if odd:
            job.frozen()
        tensor = counts if odd and job.rank == 2 else gradient
        job.keep(dist.all_reduce(tensor, async_op=job.late))
        job.wait()


if __name__ == "__main__":
    main()
