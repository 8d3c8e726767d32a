"""Ranks without a job: real recorders and rings on the fake backend.

One warm parent forks them, so 64 start in seconds. Run it as a program:

    python -m bench.ranks RATE RANKS_PER_FOLDER FOLDER [FOLDER ...]
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from typing import Final

FILL: Final = 9000
"""Ops that each rank issues first: more than a ring's history holds."""
PACE_S: Final = 0.01
_PR_SET_PDEATHSIG: Final = 1


def main() -> None:
    """Forks all ranks, prints `forked`, and waits for a signal."""
    rate, per_folder, folders = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    import torch.distributed  # noqa: F401, PLC0415 - once for all of them

    world = per_folder * len(folders)
    for rank in range(world):
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            _be_rank(rank, world, folders[rank // per_folder], float(rate))
    print("forked", flush=True)
    signal.pause()


def _be_rank(rank: int, world: int, folder: str, rate: float) -> None:
    """Fills the ring, then issues `rate` ops a second; none if that is 0."""
    os.environ |= {
        "FRTOP_DIR": folder, "FRTOP_AGENT": "0", "RANK": str(rank), "WORLD_SIZE": str(world),
        "LOCAL_RANK": str(rank), "MASTER_ADDR": "bench", "MASTER_PORT": "29500",
    }  # fmt: skip
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415
    from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: PLC0415

    import frtop_probe  # noqa: PLC0415

    torch.set_num_threads(1)
    frtop_probe.start()
    dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
    tensors = [torch.ones(64 * (1 + n)) for n in range(8)]
    for n in range(FILL):
        dist.all_reduce(tensors[n % len(tensors)])
    while not rate:
        time.sleep(60)
    each = max(1, round(rate * PACE_S))
    due = time.monotonic()
    while True:
        for n in range(each):
            dist.all_reduce(tensors[n % len(tensors)])
        due += each / rate
        time.sleep(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    main()
