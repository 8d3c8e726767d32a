"""Rank 1 computes forever in a loop that does not converge."""

import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join

CASE = Case(
    (Truth(("not_entered",), culprits=(1,), causes=("computing",), progress=("active",)),),
)


def solve(matrix: torch.Tensor) -> torch.Tensor:
    guess = torch.ones(len(matrix))
    while guess.norm() > 1e-3:
        guess = matrix @ guess
        guess = guess / guess.norm()
    return guess


def main() -> None:
    job = join()
    gradient = torch.ones(1000)
    for step in range(100):
        time.sleep(STEP_S)
        if step == 40 and job.rank == 1:
            job.mark_fault()
            solve(torch.rand(200, 200))
        job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()


if __name__ == "__main__":
    main()
