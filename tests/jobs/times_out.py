"""Rank 1 sleeps where the others reduce, in a group with a timeout of a minute."""

import time
from datetime import timedelta

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    tensor = torch.ones(4)
    for step in range(400):
        if step == 300 and dist.get_rank() == 1:
            print("hangs", time.time(), flush=True)
            time.sleep(600)
        dist.all_reduce(tensor)
        time.sleep(0.02)


if __name__ == "__main__":
    main()
