"""The parent's side of the child that reads gauges: asks it, and asks less when it hangs."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Final

from frtop_probe import child_process
from frtop_probe.gauges.readings import GaugeReading, reading_from
from frtop_probe.outside.line_child import LineChild
from frtop_probe.outside.memory import NotReadable

DID_NOT_RETURN: Final = "NVML does not answer: a call of it hangs in the driver"
NO_ANSWER: Final = "the program that reads NVML ends or does not start"
DEADLINE_S: Final = 5.0
"""A reading of eight GPUs takes some 0.05 s, the first one seconds: it opens NVML."""
FIRST_PAUSE_S: Final = 60.0
LONGEST_PAUSE_S: Final = 3600.0
"""After a call that hung: each further one doubles the pause, as each costs a child."""
MAX_LEFT: Final = 2
"""Children that may hang in the driver at a time; some 20 MB each."""
_MODULE: Final = "frtop_probe.gauges"


class GaugeWorker:
    """Reads gauges through one child, one reading at a time."""

    def __init__(
        self,
        *,
        deadline_s: float = DEADLINE_S,
        pause_s: float = FIRST_PAUSE_S,
        command: Sequence[str] | None = None,
    ) -> None:
        """Starts nothing yet: the child starts with the first reading, in the main thread.

        Args:
            deadline_s: Seconds for a reading.
            pause_s: Seconds without a child after the first reading that failed.
            command: Program that speaks the protocol of `__main__`; by default that itself.
        """
        program = command or (*child_process.python_command(_MODULE), str(os.getpid()))
        self._lines = LineChild(program, max_left=MAX_LEFT)
        self._deadline_s = deadline_s
        self._first_pause_s = pause_s
        self._pause_s = pause_s
        self._not_before = 0.0
        self._problem = ""

    @property
    def runs(self) -> bool:
        """Whether there is a child now."""
        return self._lines.runs

    async def read(self, *, processes: bool = False) -> GaugeReading:
        """Reads all GPUs; never raises for what is wrong with them.

        While it pauses after a failure, `problem` is that of the failure.
        """
        if time.monotonic() < self._not_before:
            return self._failed()
        try:
            answer = await self._lines.exchange({"processes": processes}, self._deadline_s)
            reading = reading_from(answer)
        except TimeoutError:
            self._pause(DID_NOT_RETURN)
        except (NotReadable, KeyError, TypeError, ValueError):
            if self._problem != DID_NOT_RETURN:  # else: those that hang are still there
                self._problem = NO_ANSWER
            self._lines.abandon()
            self._pause(self._problem)
        else:
            if not reading.problem:
                self._problem, self._pause_s = "", self._first_pause_s
                return reading
            self._lines.abandon()  # it would be there for nothing
            self._pause(reading.problem)
        return self._failed()

    async def stop(self) -> None:
        """Ends the child; the next reading starts another."""
        await self._lines.close()

    async def close(self) -> None:
        """Ends the child for good."""
        self._lines.refuse_requests()
        await self._lines.close()

    def _pause(self, problem: str) -> None:
        self._problem = problem
        self._not_before = time.monotonic() + self._pause_s
        self._pause_s = min(LONGEST_PAUSE_S, 2 * self._pause_s)

    def _failed(self) -> GaugeReading:
        return GaugeReading(time.monotonic_ns(), problem=self._problem)
