"""Starts the processes of a scripted job, and ends them; no file and no process is left."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

from frtop_probe import keys
from frtop_tui.connect.endpoints import Endpoint
from frtop_tui.demo.scripted.script import Script, ScriptedMesh
from frtop_tui.demo.scripted.service import ADDRESS
from frtop_tui.errors import DemoFailed

HOSTS_PER_PROCESS: Final = 256
MOST_PROCESSES: Final = 8


class ScriptedJob:
    """A context manager around the processes."""

    def __init__(self, ranks: int, fault: str) -> None:
        """Raises `UsageError` if there is no mesh with this number of ranks."""
        self.script = Script(ScriptedMesh.of(ranks), fault, time.monotonic_ns())
        self._folder = Path(tempfile.mkdtemp(prefix="frtop-demo-"))
        self.processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> ScriptedJob:  # noqa: PYI034 - Self needs Python 3.11
        return self

    def start(self) -> tuple[Endpoint, ...]:
        """Starts all hosts; returns where their agents listen.

        Raises:
            DemoFailed: a process did not come up.
        """
        os.environ[keys.FILE_VARIABLE] = str(self._folder / "key")
        pair = keys.load(create=True)
        script = self.script
        count = max(1, min(MOST_PROCESSES, -(-script.shape.hosts // HOSTS_PER_PROCESS)))
        for number in range(count):
            arguments = (script.shape.world, script.fault, script.begin_ns, number, count)
            with (self._folder / "log").open("ab") as log:
                self.processes.append(
                    subprocess.Popen(
                        [sys.executable, "-m", __package__, *map(str, arguments)],
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=log,
                    )
                )
        found: list[Endpoint] = []
        for process in self.processes:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                last = (self._folder / "log").read_text(errors="replace").splitlines()[-4:]
                raise DemoFailed("\n".join(["the scripted hosts did not start", *last]),
                                 "with fewer ranks it needs fewer files: `ulimit -n`")  # fmt: skip
            found += [
                Endpoint(name, ADDRESS, pub, ask, pair.public)
                for name, pub, ask in json.loads(line)
            ]
        return tuple(found)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self.processes:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        for process in self.processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.kill()
            process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
