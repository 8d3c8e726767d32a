"""Asks the child that reads GPUs."""

from __future__ import annotations

import time
from typing import Final

from frtop_probe.gauges.readings import GaugeReading, reading_from
from frtop_probe.proc.pausing_child import PausingChild

DID_NOT_RETURN: Final = "NVML does not answer: a call of it hangs in the driver"
NO_ANSWER: Final = "the program that reads NVML ends or does not start"


class GaugeWorker(PausingChild):
    """Reads gauges through one child, one reading at a time."""

    module = "frtop_probe.gauges"
    hangs = DID_NOT_RETURN
    fails = NO_ANSWER

    async def read(self, *, processes: bool = False) -> GaugeReading:
        """Reads all GPUs; never raises for what is wrong with them.

        While it pauses after a failure, `problem` is that of the failure.
        """
        reading = await self.ask({"processes": processes}, reading_from)
        if reading is not None and not reading.problem:
            self._well()
            return reading
        if reading is not None:
            self._lines.abandon()  # it would be there for nothing
            self._pause(reading.problem)
        return GaugeReading(time.monotonic_ns(), problem=self._problem)
