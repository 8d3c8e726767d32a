"""Rank 1 has finished training and uploads its model to a server that never reads."""

import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join

CASE = Case((Truth(("not_entered",), culprits=(1,), causes=("file_io",), says=("upload",)),))


def main() -> None:
    job = join()
    gradient = torch.ones(1_000_000)
    for step in range(100):
        time.sleep(STEP_S)
        if step == 40 and job.rank == 1:
            break
        job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()
    job.mark_fault()
    job.pipe("upload").write_bytes(gradient.numpy().tobytes())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
