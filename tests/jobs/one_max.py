"""Trains at full speed; one rank reduces with MAX instead of SUM once. Nothing hangs.

Truth: mismatch, culprit 2, in the op whose number is on the command line. Then continues slowly
until FOLDER/stop exists.
"""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

OPS = 5000
ODD_RANK = 2


def main() -> None:
    folder, odd = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    gradient = torch.ones(1000)
    for number in range(1, OPS + 1):
        reduce = dist.ReduceOp.SUM
        if number == odd and rank == ODD_RANK:
            reduce = dist.ReduceOp.MAX
        dist.all_reduce(gradient, op=reduce)
        gradient /= dist.get_world_size()
    if rank == 0:
        (folder / "done").touch()
    stop = torch.zeros(1)
    while not stop.item():
        time.sleep(0.05)
        stop.fill_((folder / "stop").exists())
        dist.broadcast(stop, 0)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
