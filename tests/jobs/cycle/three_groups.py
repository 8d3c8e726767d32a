"""Three ranks with a group for each pair, and each rank first waits in a different group."""

import time

import torch
import torch.distributed as dist

from zoo.ground_truth import Case, Truth
from zoo.rank import STEP_S, join

CASE = Case((Truth(("cycle",), parties=((0,), (1,), (2,)), causes=("cycle",)),), ranks=3)


def main() -> None:
    job = join()
    pairs = [(0, 1), (1, 2), (2, 0)]
    groups = [dist.new_group(sorted(pair), group_desc=f"pair {pair}") for pair in pairs]
    gradient = torch.ones(1000)
    for step in range(100):
        time.sleep(STEP_S)
        mine = [group for group, pair in zip(groups, pairs, strict=True) if job.rank in pair]
        if step == 40:
            job.mark_fault()
            mine = [groups[job.rank], groups[job.rank - 1]]
        for group in mine:
            job.keep(dist.all_reduce(gradient, group=group, async_op=job.late))
            job.wait()


if __name__ == "__main__":
    main()
