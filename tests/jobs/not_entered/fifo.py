"""Rank 2 reads a file that never ends."""

import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join

CASE = Case(
    (Truth(("not_entered",), culprits=(2,), causes=("file_io",), says=("shard-0412",)),),
)


def main() -> None:
    job = join()
    gradient = torch.ones(1000)
    shard = job.pipe("shard-0412")
    for step in range(100):
        time.sleep(STEP_S)
        if step == 40 and job.rank == 2:
            job.mark_fault()
            with shard.open("rb") as file:
                gradient += torch.frombuffer(file.read(4000), dtype=torch.float32)
        job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()


if __name__ == "__main__":
    main()
