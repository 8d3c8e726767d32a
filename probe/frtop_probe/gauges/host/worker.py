"""The parent's side of the child that reads a host."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from typing import Final

from frtop_probe import child_process
from frtop_probe.gauges.host.subjects import HostReading, host_reading_from
from frtop_probe.gauges.pausing_child import DEADLINE_S, FIRST_PAUSE_S, PausingChild

HANGS: Final = "the program that reads the host's gauges does not answer"
FAILS: Final = "the program that reads the host's gauges ends or does not start"
_MODULE: Final = "frtop_probe.gauges.host"


class HostWorker(PausingChild):
    """Reads a host through one child, one reading at a time."""

    hangs = HANGS
    fails = FAILS

    def __init__(
        self,
        *,
        deadline_s: float = DEADLINE_S,
        pause_s: float = FIRST_PAUSE_S,
        command: Sequence[str] | None = None,
    ) -> None:
        """Starts nothing yet; the arguments are those of `GaugeWorker`."""
        program = command or (*child_process.python_command(_MODULE), str(os.getpid()))
        super().__init__(program, deadline_s=deadline_s, pause_s=pause_s)

    async def read(self, pids: Iterable[int]) -> HostReading:
        """Reads all sources; a note says what is wrong with the child."""
        reading = await self.ask({"pids": list(pids)}, host_reading_from)
        if reading is None:
            return HostReading(time.monotonic_ns(), notes=(self._problem,))
        self._well()
        return reading
