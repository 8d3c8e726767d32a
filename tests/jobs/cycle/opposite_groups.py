"""Half of the ranks use two groups in the opposite order."""

import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join

CASE = Case((Truth(("cycle",), parties=((0, 1), (2, 3)), causes=("cycle",)),))


def main() -> None:
    job = join()
    data = dist.new_group(group_desc="data")
    tensor = dist.new_group(group_desc="tensor")
    gradient = torch.ones(1000)
    for step in range(100):
        time.sleep(STEP_S)
        order = [data, tensor]
        if step == 40:
            job.mark_fault()
            order = order if job.rank < 2 else order[::-1]
        for group in order:
            job.keep(dist.all_reduce(gradient, group=group, async_op=job.late))
            job.wait()


if __name__ == "__main__":
    main()
