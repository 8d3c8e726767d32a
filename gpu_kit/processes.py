"""Runs processes under deadlines: each in a group of its own, and none is left behind.

Only `/proc/PID/stat` is read: other files of a process may block while it is in the driver.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from frtop_probe.proc import pid_stat
from frtop_probe.proc.pid_stat import Stat

_BEFORE: Final = """
import ctypes, os, sys
os.setpgid(0, 0)
ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG, SIGKILL; both outlast the exec
os.execvp(sys.argv[1], sys.argv[1:])
"""
_PR_SET_CHILD_SUBREAPER: Final = 36
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
TERM_S: Final = 2.0
GONE_S: Final = 6.0


def descendants(of: int, stats: Sequence[Stat] | None = None) -> list[Stat]:
    """Returns all descendants of a process that still run, parents before children."""
    every = _all() if stats is None else stats
    children: dict[int, list[Stat]] = {}
    for stat in every:
        children.setdefault(stat.parent, []).append(stat)
    found: list[Stat] = []
    queue = [of]
    while queue:
        below = children.get(queue.pop(0), [])
        queue += [stat.pid for stat in below]
        found += [stat for stat in below if stat.state not in "ZX"]
    return found


def adopt_orphans() -> None:
    """Makes orphans below this process its children, so that none escapes `end_all`."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def start(
    command: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
    *,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Starts a command in a process group of its own; it is killed when its starter ends.

    The starter is the calling thread. No function runs between fork and exec: callers have threads.
    """
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _BEFORE, *command],
            env=dict(environment), stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, pass_fds=pass_fds,
        )  # fmt: skip


def wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """Waits for it; after `seconds` asks it to end, then kills its group and returns None."""
    try:
        return process.wait(max(0.1, seconds))
    except subprocess.TimeoutExpired:
        pass
    for number in (signal.SIGTERM, signal.SIGKILL):
        signal_group(process, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(TERM_S)
            break
    return None


def signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    """Sends a signal to a process that `start` has started, and to its group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
    process.send_signal(number)  # it may have no group yet


def end_all(below: int = 0) -> list[Stat]:
    """Kills all descendants of this process; returns those that do not end, as in a driver."""
    end = time.monotonic() + GONE_S
    while left := descendants(below or os.getpid()):
        for stat in left:
            with suppress(ProcessLookupError):
                os.kill(stat.pid, signal.SIGKILL)
        _reap()
        if time.monotonic() > end:
            return left
        time.sleep(0.05)
    _reap()
    return []


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _all() -> list[Stat]:
    found = []
    for entry in os.listdir("/proc"):  # noqa: PTH208 - names only, and many
        if entry.isdecimal():
            stat = pid_stat.read(f"/proc/{entry}")
            if stat is not None:
                found.append(stat)
    return found
