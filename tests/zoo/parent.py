"""Forks the ranks of programs from one process that has already loaded torch.

Run as `frtop run -- python parent.py FOLDER [MODULE ...]`, or without `frtop run` for jobs that
nobody prepared. It loads the modules too. Each line on stdin is a request: `start` a program,
`look`, `dump` Flight Recorder, `stop`. Each response is one line on stdout with the ranks and their
exit statuses. When stdin ends, because the runner is done or was killed, it kills its ranks and
their children, and removes FOLDER.
"""

from __future__ import annotations

import ctypes
import json
import os
import runpy
import select
import shutil
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import psutil
import torch
import torch.distributed
import torch.nn.parallel
import torch.utils.data

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


@dataclass(slots=True)
class Running:
    """The ranks of the program that runs now; there is one program at a time."""

    pids: list[int] = field(default_factory=list)
    ended: dict[int, int] = field(default_factory=dict)
    pipe: int = -1  # closing it requests dumps

    def reap(self) -> None:
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                if pid in self.pids:
                    self.ended[self.pids.index(pid)] = os.waitstatus_to_exitcode(status)

    def dump(self) -> None:
        if self.pipe >= 0:
            os.close(self.pipe)
            self.pipe = -1

    def stop(self, *, agents: bool = False) -> None:
        """Kills all descendants; orphans have become our children (subreaper)."""
        family = psutil.Process().children(recursive=True)
        for process in family:
            if not agents and _is_agent(process):
                continue
            with suppress(psutil.NoSuchProcess):
                process.kill()
        for pid in self.pids:
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
        self.reap()
        self.dump()
        self.pids, self.ended = [], {}


def _is_agent(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return "frtop_probe.agent" in process.cmdline()
    return False


def serve() -> None:
    running = Running()
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    while True:
        running.reap()
        if not select.select([0], [], [], 0.05)[0]:
            continue
        line = _line()
        if not line:
            running.stop(agents=True)
            shutil.rmtree(sys.argv[1], ignore_errors=True)
            return
        request = json.loads(line)
        if request["do"] == "start":
            running.stop()
            if _start(running, request):
                return  # this is a rank, and its program has ended
        elif request["do"] == "dump":
            running.dump()
        elif request["do"] == "stop":
            running.stop()
        running.reap()
        response = {"pids": running.pids, "ended": running.ended}
        os.write(1, json.dumps(response).encode() + b"\n")


def _line() -> bytes:
    """Reads one line without buffering: forks must not share data that was read ahead."""
    line = b""
    while byte := os.read(0, 1):
        if byte == b"\n":
            break
        line += byte
    return line


def _start(running: Running, request: dict[str, Any]) -> bool:
    """Forks the ranks; returns True in a rank after its program has ended."""
    reading, running.pipe = os.pipe()
    for rank in range(request["ranks"]):
        pid = os.fork()
        if not pid:
            os.close(running.pipe)
            _become(rank, reading, request)
            sys.argv = [request["program"]]
            runpy.run_path(request["program"], run_name="__main__")
            return True
        running.pids.append(pid)
    os.close(reading)
    return False


def _become(rank: int, reading: int, request: dict[str, Any]) -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    os.setpgid(0, 0)
    os.environ.update(
        request["environment"],
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        ZOO_DUMP=str(reading),
    )
    log = os.open(
        Path(request["environment"]["ZOO_FOLDER"]) / "log",
        os.O_WRONLY | os.O_CREAT | os.O_APPEND,
        0o600,
    )
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])
    torch.set_num_threads(1)
    for module in sys.argv[2:]:
        import_module(module)
    assert torch.distributed.is_gloo_available()
    os.write(1, b"{}\n")
    serve()
