"""Rank 1 traces one graph after another, without a compiler."""

import torch

from zoo.rank import fault, join

CASE = fault("not_entered", 1, "compiling", progress="active")


def trace_all(batch: torch.Tensor) -> None:
    for count in range(2, 500):
        blocks = [torch.nn.Linear(50, 50), torch.nn.GELU(), torch.nn.LayerNorm(50)] * 20
        model = torch.compile(torch.nn.Sequential(*blocks[:count]), backend="aot_eager")
        model(batch).sum().backward()
        torch.compiler.reset()


job = join()
for odd in job.steps(1):
    if odd:
        trace_all(torch.ones(8, 50))
    job.all_reduce()
