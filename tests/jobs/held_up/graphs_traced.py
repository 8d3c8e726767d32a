"""Rank 1 traces one graph after another, without a compiler."""

import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join

CASE = Case(
    (Truth(("not_entered",), culprits=(1,), causes=("compiling",), progress=("active",)),),
)


def trace_all(batch: torch.Tensor) -> None:
    for count in range(2, 500):
        blocks = [torch.nn.Linear(50, 50), torch.nn.GELU(), torch.nn.LayerNorm(50)] * 20
        model = torch.compile(torch.nn.Sequential(*blocks[:count]), backend="aot_eager")
        model(batch).sum().backward()
        torch.compiler.reset()


def main() -> None:
    job = join()
    gradient = torch.ones(1000)
    for step in range(60):
        time.sleep(STEP_S)
        if step == 40 and job.rank == 1:
            job.mark_fault()
            trace_all(torch.ones(8, 50))
        job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()


if __name__ == "__main__":
    main()
