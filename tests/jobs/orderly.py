"""Trains until the file on the command line exists, and ends. Truth: always healthy."""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    end = Path(sys.argv[1])
    go_on = torch.ones(1)
    while go_on.item():
        dist.all_reduce(torch.ones(1000))
        go_on = torch.tensor([float(not end.exists())])
        dist.broadcast(go_on, src=0)
        time.sleep(0.01)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
