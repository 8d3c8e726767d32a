"""A rank of a small gloo job that does not use frtop: rank_program.py WHAT STORE."""

from __future__ import annotations

import ctypes
import datetime as dt
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn


def join(rank: int, size: int, store: str) -> tuple[dist.ProcessGroup, dist.ProcessGroup]:
    """Makes the default group, one of ranks 0 and 1, and one of ranks 0 and 2."""
    # A forked rank has loaded torch before its variables were set.
    dist.set_debug_level_from_env()  # type: ignore[attr-defined]
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=size,
        timeout=dt.timedelta(seconds=int(os.environ.get("TIMEOUT_S", "300"))),
    )
    left = dist.new_group([0, 1], group_desc="left")
    right = dist.new_group([0, size - 1], group_desc="a description too long for a short string")
    for _ in range(5):
        dist.all_reduce(torch.ones(3))
    if rank in (0, 1):
        dist.all_reduce(torch.ones(3), group=left)
    os.environ["SET_LATER"] = f"of rank {rank}"
    ready(rank, store)
    return left, right


def ready(rank: int, store: str) -> None:
    path = Path(f"{store}.{rank}.new")
    path.write_text(str(os.getpid()))
    path.rename(f"{store}.{rank}")


def hold_gil() -> None:
    time.sleep(1)  # gloo's thread lets go of the last op; it may need the GIL for that
    ctypes.PyDLL(None).sleep(3600)


def run(rank: int, size: int, what: str, store: str) -> None:
    left, right = join(rank, size, store)
    tensor = torch.ones(7, 3, 2)
    last = rank == size - 1
    if what == "busy":
        while True:
            dist.all_reduce(tensor)
            dist.barrier(group=left) if rank < 2 else None
            dist.all_reduce(tensor, group=right) if rank in (0, size - 1) else None
    elif what == "moved":
        # Binds more names in c10d's module than its dict has room for, once the test has looked.
        while not Path(f"{store}.looked").exists():
            time.sleep(0.01)
        vars(dist.distributed_c10d).update({f"name{number}": None for number in range(2000)})
        Path(f"{store}.bound").touch()
        time.sleep(600)
    elif what == "absent":
        hold_gil() if last else dist.all_reduce(tensor)
    elif what == "mismatch":
        dist.barrier() if last else dist.all_reduce(tensor)
    elif what == "queued" and last:
        hold_gil()
    elif what == "queued":
        works = [dist.all_reduce(tensor.bfloat16(), async_op=True) for _ in range(6)]
        works[0].wait()


def main() -> None:
    what, store = sys.argv[1:]
    size = int(os.environ["WORLD_SIZE"])
    if what == "spawned":
        spawn(run, (size, "mismatch", store), nprocs=size)  # type: ignore[no-untyped-call]
    elif what == "without_groups":
        ready(0, store)
        hold_gil()
    else:
        run(int(os.environ["RANK"]), size, what, store)


if __name__ == "__main__":
    main()
