"""Jobs of two ranks that come and go: real recorders and rings, gloo.

One warm parent forks them. Run it as a program, with the commands `start FIRST COUNT` and
`end FIRST COUNT` on standard input; it answers each with `done`.

    python -m bench.small_jobs FOLDER RATE
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from typing import Final, NoReturn

RANKS: Final = 2
FIRST_PORT: Final = 30_000
_PR_SET_PDEATHSIG: Final = 1


def main() -> None:
    """Starts and ends jobs on command; all end with this program."""
    folder, rate = sys.argv[1], float(sys.argv[2])
    import torch.distributed  # noqa: F401, PLC0415 - once for all of them

    pids: dict[int, list[int]] = {}
    for line in sys.stdin:
        command, first, count = line.split()
        for job in range(int(first), int(first) + int(count)):
            if command == "start":
                pids[job] = [_fork(rank, job, folder, rate) for rank in range(RANKS)]
            else:
                for pid in pids[job]:
                    os.kill(pid, signal.SIGTERM)
                for pid in pids.pop(job):
                    os.waitpid(pid, 0)
        print("done", flush=True)


def _fork(rank: int, job: int, folder: str, rate: float) -> int:
    pid = os.fork()
    if pid == 0:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        _be_rank(rank, job, folder, rate)
    return pid


def _be_rank(rank: int, job: int, folder: str, rate: float) -> NoReturn:
    """Issues `rate` ops a second until SIGTERM, then exits with status 0."""
    os.environ |= {
        "FRTOP_DIR": folder, "FRTOP_AGENT": "0", "RANK": str(rank), "WORLD_SIZE": str(RANKS),
        "LOCAL_RANK": str(rank), "MASTER_ADDR": "bench", "MASTER_PORT": str(FIRST_PORT + job),
        "TORCHELASTIC_RUN_ID": f"job-{job}",
    }  # fmt: skip
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415

    import frtop_probe  # noqa: PLC0415

    torch.set_num_threads(1)
    frtop_probe.start()
    store = f"file://{folder}/store-{job}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=RANKS)
    tensor = torch.ones(64)
    while True:
        dist.all_reduce(tensor)
        time.sleep(1 / rate)


if __name__ == "__main__":
    main()
