"""All ranks wait for a build of a C++ extension, and none of them builds it."""

import time

import torch
import torch.distributed as dist
from torch.utils.file_baton import FileBaton

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join

CASE = Case(
    (
        Truth(
            ("not_entered",),
            culprits=(0, 1, 2, 3),
            causes=("lock",),
            says=("nobody is in an op", "C++ extension"),
        ),
    ),
    modes=("sync",),
    within_s=90.0,
)


def main() -> None:
    job = join()
    gradient = torch.ones(1000)
    lock = job.folder / "lock"
    lock.touch()
    for step in range(100):
        time.sleep(STEP_S)
        if step == 40:
            job.mark_fault()
            FileBaton(str(lock)).wait()
        dist.all_reduce(gradient)


if __name__ == "__main__":
    main()
