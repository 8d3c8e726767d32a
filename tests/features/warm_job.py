"""A job of two ranks that starts at once, its agent, and a folder of its own for both."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from e2e.conftest import JOBS, family, own_home, wait_for_ranks
from free_port import free_port
from recorder.rank_runner import end, environment
from recorder.warm_ranks import WarmRank


@contextmanager
def told_to_hang(folder: Path) -> Iterator[list[WarmRank]]:
    """It trains until `hang` is in the folder: then rank 1 reads a pipe that nobody writes to."""
    os.mkfifo(folder / "shard")
    with pytest.MonkeyPatch.context() as patch, own_home(patch) as home:
        base = environment(home) | {k: v for k, v in os.environ.items() if k.startswith("FRTOP_")}
        base |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
        del base["FRTOP_AGENT"]
        words = str(folder), "1"
        with (folder / "said").open("w") as said:
            ranks = [
                WarmRank(
                    JOBS / "told_to_hang.py",
                    words,
                    base | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                    (0, said.fileno(), said.fileno()),
                )
                for rank in range(2)
            ]
        try:
            wait_for_ranks(home, 2)
            yield ranks
        finally:
            for rank in ranks:
                end(rank)
            for process in family(home):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
                    process.wait(30)
