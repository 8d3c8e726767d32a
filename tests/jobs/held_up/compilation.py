"""Rank 2 compiles: its batches keep having new shapes and code paths."""

import torch

from zoo.rank import fault, join

CASE = fault(
    "not_entered",
    2,
    "compiling",
    progress="active",
    environment={"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"},
)


def compile_all(batch: torch.Tensor) -> None:
    for count in range(2, 60):
        layers = [torch.nn.Linear(50, 50), torch.nn.GELU(), torch.nn.LayerNorm(50)] * count
        model = torch.compile(torch.nn.Sequential(*layers))
        model(batch).sum().backward()
        torch.compiler.reset()


job = join()
for odd in job.steps(2):
    if odd:
        compile_all(torch.ones(8, 50))
    job.all_reduce()
