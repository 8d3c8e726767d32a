"""Trains on four hosts whose links may be slow: two groups of neighbours, and two across.

Every step moves 100 KB in each of a rank's two groups, over links that only this job uses.
"""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

STEP_S = 0.06
ELEMENTS = 25_000


def main() -> None:
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.0)
    own = {}
    for name, groups in (("tensor", ((0, 1), (2, 3))), ("data", ((0, 2), (1, 3)))):
        for number, ranks in enumerate(groups):
            group = dist.new_group(list(ranks), group_desc=f"{name}:{number}")
            if rank in ranks:
                own[name] = group
    gradient = torch.ones(ELEMENTS)
    (folder / f"trains.{rank}").touch()
    while True:
        time.sleep(STEP_S)
        dist.all_reduce(gradient, group=own["tensor"])
        dist.all_reduce(gradient, group=own["data"])
        gradient /= 4
        optimizer.step()


if __name__ == "__main__":
    main()
