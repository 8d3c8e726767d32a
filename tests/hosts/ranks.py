"""One rank on each host, forked from a process that has loaded torch already.

Run as `frtop run -- python ranks.py PLAN`, it starts the plan's program once for each of
the plan's hosts, inside the host, says the pids, and ends them when its stdin ends. Ranks
that each load torch would keep two cores busy for many seconds.
"""

from __future__ import annotations

import ctypes
import json
import os
import runpy
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch.distributed

_NEW_MOUNT, _NEW_TIME, _NEW_UTS, _NEW_NET = 0x20000, 0x80, 0x4000000, 0x40000000
_NEW_PID: Final = 0x20000000
_PR_SET_PDEATHSIG: Final = 1


@dataclass(frozen=True, slots=True)
class Start:
    """A rank to be started: `holder` is a process on its host, `log` takes its output."""

    holder: int
    environment: dict[str, str]
    log: str


def main(plan: Path) -> None:
    content = json.loads(plan.read_text())
    assert torch.distributed.is_gloo_available()
    pids: list[int] = []
    for one in content["ranks"]:
        pid = os.fork()
        if not pid:
            _become(Start(**one))
            sys.argv = content["command"]
            runpy.run_path(sys.argv[0], run_name="__main__")
            return
        pids.append(pid)
    print(json.dumps(pids), flush=True)
    sys.stdin.read()
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for pid in pids:
        os.waitpid(pid, 0)


def _become(start: Start) -> None:
    """Makes this single-threaded process the rank."""
    enter(start.holder)
    os.environ.update(start.environment)
    log = os.open(start.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)


def enter(holder: int) -> None:
    """Moves this single-threaded process to the host of `holder`, a process there."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    here = _NEW_NET | _NEW_UTS | _NEW_MOUNT
    clock = "time" if Path("/proc/self/ns/time").exists() else ""
    if clock and not Path(f"/proc/{holder}/ns/time").samefile("/proc/self/ns/time"):
        here |= _NEW_TIME
    own_pids = not Path(f"/proc/{holder}/ns/pid").samefile("/proc/self/ns/pid")
    if libc.setns(os.pidfd_open(holder), here | (_NEW_PID if own_pids else 0)):
        raise OSError(ctypes.get_errno(), "setns")
    if own_pids and (child := os.fork()):  # only children are in the other namespace
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os._exit(code if code >= 0 else 128 - code)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
