"""Processes that were given up, until they have ended."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, field
from typing import Final

from frtop_tui.connect.pipes.process import PipeProcess

LEAVE_S: Final = 0.7
"""From the end of its input to SIGTERM, and from there to SIGKILL."""
STEP_S: Final = 0.01


@dataclass(slots=True)
class _Leaving:
    process: PipeProcess
    since: float
    signals: list[signal.Signals] = field(default_factory=lambda: [signal.SIGKILL, signal.SIGTERM])


class LeavingProcesses:
    """Their input has ended. Who does not leave by that gets SIGTERM, and then SIGKILL."""

    def __init__(self) -> None:
        self._leaving: list[_Leaving] = []

    def add(self, process: PipeProcess, now: float) -> None:
        """Takes over a process."""
        self._leaving.append(_Leaving(process, now))

    def work(self, now: float) -> None:
        """Sends the next signal to those that take too long; forgets those that have ended."""
        for one in list(self._leaving):
            if one.process.status() is not None:
                one.process.release()
                self._leaving.remove(one)
            elif one.signals and now - one.since > LEAVE_S:
                one.process.signal(one.signals.pop())
                one.since = now

    def await_end(self) -> None:
        """Waits until all have ended: three times `LEAVE_S` at most."""
        until = time.monotonic() + 3 * LEAVE_S
        while self._leaving and (now := time.monotonic()) < until:
            self.work(now)
            time.sleep(STEP_S)
