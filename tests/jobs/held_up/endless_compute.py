"""Rank 1 computes forever in a loop that does not converge."""

import torch

from zoo.rank import fault, join

CASE = fault("not_entered", 1, "computing", progress="active")


def solve(matrix: torch.Tensor) -> torch.Tensor:
    guess = torch.ones(len(matrix))
    while guess.norm() > 1e-3:
        guess = matrix @ guess
        guess = guess / guess.norm()
    return guess


job = join()
for odd in job.steps(1):
    if odd:
        solve(torch.rand(200, 200))
    job.all_reduce()
