"""Jobs that come and go: waves of forked gloo ranks, each with a full Flight Recorder.

Run it as a program: `-m bench.unprepared_crowd FOLDER WAVES RANKS SECONDS`. Each wave is a job of
its own. Its ranks issue more ops than torch records, and stay for some seconds. torch is imported
only once.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist

OPS: Final = 2500
"""torch keeps 2,000."""


def main() -> None:
    """Runs all waves, one after the other."""
    folder, waves, ranks, seconds = Path(sys.argv[1]), *map(int, sys.argv[2:5])
    torch.set_num_threads(1)
    for wave in range(waves):
        children = []
        for rank in range(ranks):
            child = os.fork()
            if not child:
                try:
                    _live(folder / f"store{wave}", rank, ranks, seconds)
                finally:
                    os._exit(0)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)


def _live(store: Path, rank: int, world: int, seconds: float) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    own = dist.new_group([rank], use_local_synchronization=True)
    tensor = torch.ones(64)
    for _ in range(OPS):
        dist.all_reduce(tensor, group=own)
    time.sleep(seconds)


if __name__ == "__main__":
    main()
