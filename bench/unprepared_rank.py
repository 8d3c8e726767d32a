"""A rank of a job that nobody prepared, on gloo.

Run it as a program, under torchrun:

    -m bench.unprepared_rank FOLDER hang|RATE

`hang`: rank 1 sleeps, and the others wait for it. Otherwise each rank issues RATE ops a second, in
a group of its own, because eight ranks on few cores could not exchange that many. Every hundredth
op waits for all ranks; rank 0 counts those in a file.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import time
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist

STEP: Final = 100
COUNT: Final = struct.Struct("q")


def main() -> None:
    """Runs until it is killed."""
    folder, what = Path(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    groups = [dist.new_group([member]) for member in range(world)]
    tensor = torch.ones(64)
    for _ in range(10):
        dist.all_reduce(tensor)
    (folder / f"rank{rank}").write_text(str(os.getpid()))
    if what == "hang":
        if rank == 1:
            time.sleep(3600)
        dist.all_reduce(tensor)
        return
    _train(folder / "steps", groups[rank], tensor, float(what), counts=rank == 0)


def _train(
    path: Path, own: dist.ProcessGroup, tensor: torch.Tensor, rate: float, *, counts: bool
) -> None:
    steps = 0
    if counts:
        path.write_bytes(COUNT.pack(0))
        with path.open("r+b") as file:
            cell = mmap.mmap(file.fileno(), COUNT.size)
    due = time.monotonic()
    while True:
        for _ in range(STEP - 1):
            dist.all_reduce(tensor, group=own)
        dist.all_reduce(tensor)
        steps += 1
        if counts:
            COUNT.pack_into(cell, 0, steps)
        due += STEP / rate if rate else 0.0
        time.sleep(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    main()
