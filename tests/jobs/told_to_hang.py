"""Trains until a file makes one rank hang: it then reads a pipe that nobody writes to.

Truth: the rank named on the command line has not entered the next all_reduce, because it
reads FOLDER/shard; the others wait for it. While FOLDER/pause exists, no rank begins a step: a
rank that has seen the file reports it in the op itself, so that all pause after the same op.
"""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

STEP_S = 0.1


def main() -> None:
    folder, culprit = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    pause, paused = folder / "pause", folder / f"paused.{dist.get_rank()}"
    gradient = torch.ones(1000)
    while True:
        time.sleep(STEP_S)
        if dist.get_rank() == culprit and (folder / "hang").exists():
            (folder / "shard").read_bytes()
        gradient[0] = float(pause.exists())
        dist.all_reduce(gradient)
        if gradient[0]:
            paused.touch()
            while pause.exists():
                time.sleep(0.01)
            paused.unlink()
        gradient /= dist.get_world_size()


if __name__ == "__main__":
    main()
