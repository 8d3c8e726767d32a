"""The parent's side of the child that reads GPUs: asks it, and asks less when it hangs."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Final

from frtop_probe import child_process
from frtop_probe.gauges.pausing_child import DEADLINE_S, FIRST_PAUSE_S, MAX_LEFT, PausingChild
from frtop_probe.gauges.readings import GaugeReading, reading_from

__all__ = ["DID_NOT_RETURN", "MAX_LEFT", "NO_ANSWER", "GaugeWorker"]

DID_NOT_RETURN: Final = "NVML does not answer: a call of it hangs in the driver"
NO_ANSWER: Final = "the program that reads NVML ends or does not start"
_MODULE: Final = "frtop_probe.gauges"


class GaugeWorker(PausingChild):
    """Reads gauges through one child, one reading at a time."""

    hangs = DID_NOT_RETURN
    fails = NO_ANSWER

    def __init__(
        self,
        *,
        deadline_s: float = DEADLINE_S,
        pause_s: float = FIRST_PAUSE_S,
        command: Sequence[str] | None = None,
    ) -> None:
        """Starts nothing yet: the child starts with the first reading, in the main thread.

        Args:
            deadline_s: Seconds for a reading. One of eight GPUs takes some 0.05 s, the first one
                seconds: it opens NVML.
            pause_s: Seconds without a child after the first reading that failed.
            command: Program that speaks the protocol of `__main__`; by default that itself.
        """
        program = command or (*child_process.python_command(_MODULE), str(os.getpid()))
        super().__init__(program, deadline_s=deadline_s, pause_s=pause_s)

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
