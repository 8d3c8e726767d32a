"""All ranks finish and end at different times, without destroying their groups."""

import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case
from zoo.rank import STEP_S, join

CASE = Case(lasts_s=40)


def main() -> None:
    job = join()
    gradient = torch.ones(1000)
    for _ in range(100):
        time.sleep(STEP_S)
        job.keep(dist.all_reduce(gradient, async_op=job.late))
        job.wait()
    time.sleep(4 * job.rank)


if __name__ == "__main__":
    main()
