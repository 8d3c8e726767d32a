"""Asks the child that reads a host."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from frtop_probe.gauges.host.subjects import HostReading, host_reading_from
from frtop_probe.proc.pausing_child import PausingChild

HANGS: Final = "the program that reads the host's gauges does not answer"
FAILS: Final = "the program that reads the host's gauges ends or does not start"


class HostWorker(PausingChild):
    """Reads a host through one child, one reading at a time."""

    module = "frtop_probe.gauges.host"
    hangs = HANGS
    fails = FAILS

    async def read(self, pids: Iterable[int]) -> HostReading:
        """Reads all sources; a note says what is wrong with the child.

        Args:
            pids: Of the ranks: each is read with its children.
        """
        reading = await self.ask({"pids": list(pids)}, host_reading_from)
        if reading is None:
            return HostReading(time.monotonic_ns(), notes=(self._problem,))
        self._well()
        return reading
