"""A regular expression of rank 1 backtracks for years and never releases the GIL."""

import re
import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join

# It computes, and frtop cannot know that it never ends: only the cause matters.
CASE = Case(
    (
        Truth(
            ("not_entered",), culprits=(1,), causes=("gil",), progress=("active",), says=("clean",)
        ),
    ),
)


def clean(text: str) -> str:
    return re.sub(r"(\w+\s?)+$", "", text)


def main() -> None:
    job = join()
    gradient = torch.ones(1000)
    for step in range(100):
        time.sleep(STEP_S)
        text = "a few words"
        if step == 40 and job.rank == 1:
            job.mark_fault()
            text = "a" * 60 + "!"
        gradient += len(clean(text))
        job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()


if __name__ == "__main__":
    main()
