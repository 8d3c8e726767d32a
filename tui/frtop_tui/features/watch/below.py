"""Finds the jobs that a process started: those with a rank below it."""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import suppress
from typing import Final

from frtop_probe.proc import processes
from frtop_tui.cli.parser import parse
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import UsageError

DEEPEST: Final = 64
"""The most generations between a launcher and its ranks."""


class Below:
    """A process, identified by pid and start time, and its descendants."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        stat = processes.read_stat(pid)
        self._start_ticks = stat.start_ticks if stat is not None else -1

    @property
    def lives(self) -> bool:
        """Whether the process still runs; another process with its pid does not count."""
        stat = processes.read_stat(self._pid)
        return stat is not None and stat.start_ticks == self._start_ticks and stat.state != "Z"

    def has_started(self, frame: Frame) -> bool:
        """Whether a rank of the frame's job, on this host, was started by the process."""
        return any(
            self._is_below(view.identity.pid, view.identity.start_ticks)
            for view in frame.ranks.values()
            if view.exit_info is None
        )

    def _is_below(self, pid: int, start_ticks: int) -> bool:
        stat = processes.read_stat(pid)
        if stat is None or stat.start_ticks != start_ticks:
            return False  # a rank of another host, or one that has ended
        for _ in range(DEEPEST):
            if stat is None or stat.parent <= 0:
                return False
            if stat.parent == self._pid:
                return True
            stat = processes.read_stat(stat.parent)
        return False


def start_beside(words: list[str]) -> str:
    """Starts a detached program: no launcher is its parent, waits for it or ends it.

    Its output goes to standard error. Returns why it could not be started, "" if it was.
    """
    try:
        pid = os.fork()
    except OSError as error:
        return str(error.strerror)
    if pid:
        _, status = os.waitpid(pid, 0)
        return "" if status == 0 else "no process could be started"
    status = 1
    with suppress(OSError):
        if os.fork() == 0:
            with suppress(OSError):
                os.setsid()
                null = os.open(os.devnull, os.O_RDONLY)
                os.dup2(null, 0)
                os.dup2(2, 1)
                os.execv(words[0], words)  # noqa: S606 - that is the command
        else:
            status = 0
    os._exit(status)


def start_watch(text: str) -> str:
    """Starts `frtop watch` for the program that this process will run.

    `text` has options of `frtop watch`, as for a shell.

    Returns:
        Why no watcher runs, "" if one does. A watcher that fails to start does not stop the job.

    Raises:
        UsageError: `frtop watch` does not accept the options.
    """
    try:
        words = ["watch", "--below", str(os.getpid()), *shlex.split(text)]
    except ValueError as error:
        raise UsageError(f"--watch-options: {error}", "quote it for a shell") from error
    parse(words)
    problem = start_beside([sys.executable, "-m", "frtop_tui", *words])
    return f"the job runs without a watcher: {problem}" if problem else ""
