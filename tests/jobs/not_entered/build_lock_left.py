"""Rank 2 waits for a build of a C++ extension whose builder was killed: its lock file is left."""

import time

import torch
import torch.distributed as dist
from torch.utils.file_baton import FileBaton

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join

CASE = Case(
    (Truth(("not_entered",), culprits=(2,), causes=("lock",), says=("C++ extension",)),),
)


def main() -> None:
    job = join()
    gradient = torch.ones(1000)
    lock = job.folder / "lock"
    for step in range(100):
        time.sleep(STEP_S)
        if step == 40 and job.rank == 2:
            lock.touch()
            job.mark_fault()
            FileBaton(str(lock)).wait()
        job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()


if __name__ == "__main__":
    main()
