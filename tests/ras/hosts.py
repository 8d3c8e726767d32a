"""Ranks of a job on this host, with a stand-in for RAS in each of them."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.agent_host import Host, RankProcess
from ras.answers import as_json, communicator, rank
from ras.library_file import write_library

PROGRAM = Path(__file__).with_name("rank_program.py")


class RasJob:
    """Some ranks; they share a port, as the processes of NCCL do."""

    def __init__(self, host: Host, folder: Path, name: str = "one") -> None:
        self.host = host
        self.folder = folder / name
        self.folder.mkdir()
        self.name = name
        self.port = 20_000 + random.randrange(12_000)
        self.library = write_library(self.folder)
        self.ranks: list[RankProcess] = []

    def start(self, ranks: int = 2, **options: Any) -> list[int]:
        """Starts ranks; returns their pids. RAS answers with all of them, the last one short."""
        for _ in range(ranks):
            self.start_one(**options)
        self.answer()
        return [one.pid for one in self.ranks]

    def start_one(
        self,
        environment: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        **options: Any,
    ) -> RankProcess:
        number = len(self.ranks)
        settings = {
            "library": str(self.library),
            "port": self.port,
            "answer": str(self.folder / "answer"),
            "job": self.name,
            "commands": str(self.folder / f"commands{number}"),
        } | options
        process = subprocess.Popen(
            [*prefix, sys.executable, str(PROGRAM), json.dumps(settings)],
            env={
                **self.host.environment,
                "RANK": str(number),
                "NCCL_RAS_ADDR": f"localhost:{self.port}",
                **(environment or {}),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.ranks.append(RankProcess(process))
        self.host.ranks.append(self.ranks[-1])  # it ends them
        return self.ranks[-1]

    def answer(self, data: bytes | None = None, form: str = "json") -> None:
        """Sets what RAS says from now on."""
        if data is None:
            ones = [
                rank(number, one.pid, 8812 - (number == len(self.ranks) - 1))
                for number, one in enumerate(self.ranks)
            ]
            data = as_json(communicator(ones))
        (self.folder / f"answer.{form}").write_bytes(data)

    def commands(self) -> list[str]:
        """All lines that came to any of its ranks."""
        files = sorted(self.folder.glob("commands*"))
        return [line for file in files for line in file.read_text().splitlines()]

    def statuses(self) -> int:
        """How often RAS was asked for a status."""
        return sum(line.endswith("STATUS") for line in self.commands())

    def program_in(self, function: str, file: str = "torch/distributed/distributed_c10d.py") -> str:
        """A file in which a thread waits in `function`."""
        path = self.folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            "import time\n\n\ndef wait_here():\n"
            f"    {function}()\n\n\ndef {function}():\n    time.sleep(600)\n"
        )
        return str(path)
