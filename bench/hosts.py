"""Simulates several hosts on one machine, each with a folder, ranks and an agent of its own."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from frtop_probe.agent import announcement

START_S: Final = 120.0


class Hosts:
    """Starts the hosts on entering; ends all processes and removes all files on leaving."""

    def __init__(self, count: int, ranks: int, rate: float, *, agents: bool = True) -> None:
        """Describes `count` hosts with `ranks` ranks each, which issue `rate` ops per second.

        Without `agents`, nothing of frtop runs there.
        """
        self._with_agents = agents
        self.folder = Path(tempfile.mkdtemp(prefix="frtop-bench-", dir="/dev/shm"))
        self.folders = [self.folder / f"host{n}" for n in range(count)]
        self.world = count * ranks
        self._ranks = ranks
        self._rate = rate
        self._processes: list[subprocess.Popen[bytes]] = []
        self.agents: list[announcement.Announcement] = []

    def __enter__(self) -> Hosts:  # noqa: PYI034 - Self needs Python 3.11
        os.environ["FRTOP_KEY_FILE"] = str(self.folder / "key")
        port = 20_000 + 200 * random.randrange(100)
        for folder in self.folders:
            folder.mkdir(mode=0o700)
        begin = time.monotonic()
        self._start("-m", "bench.ranks", str(self._rate), str(self._ranks),
                    *map(str, self.folders))  # fmt: skip
        while len(list(self.folder.glob("*/*.ring"))) < self.world:
            assert time.monotonic() - begin < START_S, "the ranks do not come up"
            time.sleep(0.1)
        for index, folder in enumerate(self.folders if self._with_agents else ()):
            self._start("-m", "frtop_probe.agent", FRTOP_DIR=str(folder), FRTOP_BIND="127.0.0.1",
                        FRTOP_PORT=str(port + 2 * index), FRTOP_AGENT_WITH=str(os.getpid())
                        )  # fmt: skip
            while (card := announcement.find_agent(folder)) is None:
                assert time.monotonic() - begin < START_S, f"no agent in {folder}"
                time.sleep(0.05)
            self.agents.append(card)
        return self

    @property
    def connect(self) -> list[str]:
        """The addresses for `--connect`."""
        return [f"127.0.0.1:{agent.pub}" for agent in self.agents]

    def _start(self, *arguments: str, **environment: str) -> None:
        self._processes.append(
            subprocess.Popen(
                [sys.executable, "-W", "ignore", *arguments],
                env={**os.environ, **environment, "OMP_NUM_THREADS": "1"},
                stdout=subprocess.DEVNULL,
            )
        )

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait()
        shutil.rmtree(self.folder)
