"""Every step takes a second."""

import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case
from zoo.rank import join

CASE = Case(lasts_s=15)


def main() -> None:
    job = join()
    gradient = torch.ones(1000)
    for _ in range(100):
        time.sleep(1.0)
        job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()


if __name__ == "__main__":
    main()
