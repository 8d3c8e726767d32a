"""Waits in an op for one rank, without a word of frtop: under torchrun, or `mp.spawn`.

Arguments: a folder for a file per rank, what happens, and `spawn` to start the ranks itself.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

STEPS = 30
ODD = 1
ODD_STEP = 20


def train(rank: int, folder: str, what: str) -> None:
    tensor = torch.ones(4)
    for step in range(STEPS):
        odd = what == "differs" and rank == ODD and step == ODD_STEP
        dist.all_reduce(tensor.int() if odd else tensor)
        time.sleep(0.02)
    Path(folder, f"rank{rank}").write_text(str(os.getpid()))
    if what == "sleeps" and rank == ODD:
        time.sleep(600)
    if what == "mismatch" and rank == ODD:
        dist.barrier()
    if what == "starts late":  # the recorder, once the test has looked from outside
        train_until(Path(folder, "home"))
        start_recorder(Path(folder, "home").read_text())
    if what in ("differs", "starts late"):
        train_until(Path(folder, "stop"))
    dist.all_reduce(tensor)
    dist.destroy_process_group()


def train_until(file: Path) -> None:
    """Trains until all ranks know that a rank has seen the file."""
    seen = torch.zeros(1)
    while not seen:
        seen += file.exists()
        dist.all_reduce(seen)
        time.sleep(0.02)


def start_recorder(home: str) -> None:
    os.environ |= {"FRTOP_DIR": home, "FRTOP_AGENT": "0"}
    import frtop_probe  # noqa: PLC0415 - until now the program knows nothing of it

    frtop_probe.start()


def spawned(rank: int, world: int, folder: str, what: str) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world
    )
    train(rank, folder, what)


def main() -> None:
    folder, what, *rest = sys.argv[1:]
    if rest:
        torch.multiprocessing.spawn(spawned, (3, folder, what), 3)
        return
    dist.init_process_group("gloo")
    train(dist.get_rank(), folder, what)


if __name__ == "__main__":
    main()
