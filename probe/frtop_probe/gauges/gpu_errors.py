"""XID errors of NVIDIA GPUs, which their driver tells to whoever listens. No right is needed.

Only those are heard that come after the child began to listen: earlier ones are in the kernel's
log, which is root's on most hosts.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

MOST: Final = 64
"""Events that are taken per reading: a broken GPU may tell of very many."""


@dataclass(slots=True)
class _Heard:
    last: int = 0
    count: int = 0
    at_ns: int = 0


class XidErrors:
    """Listens to all GPUs from the first reading on."""

    def __init__(self) -> None:
        """Calls nothing of the driver yet."""
        self._events: Any = None
        self._heard: dict[int, _Heard] = {}

    def listen(self, nvml: Any, count: int) -> None:
        """Begins to listen, once, and takes in what has come; waits for nothing.

        A GPU, driver or binding that does not offer it is left out.
        """
        try:
            if self._events is None:
                self._events = nvml.nvmlEventSetCreate()
                for index in range(count):
                    self._register(nvml, index)
            if self._heard:
                self._take(nvml)
        except (nvml.NVMLError, AttributeError):
            return  # nothing more has come, or there is no such call

    def last(self, index: int) -> int:
        """The number of the last error, 0 for none."""
        return self._heard[index].last if index in self._heard else 0

    def count(self, index: int) -> int | None:
        """How many there were; None where nobody listens."""
        return self._heard[index].count if index in self._heard else None

    def at_ns(self, index: int) -> int:
        """When the last one was found."""
        return self._heard[index].at_ns if index in self._heard else 0

    def _register(self, nvml: Any, index: int) -> None:
        kind = nvml.nvmlEventTypeXidCriticalError
        try:
            device = nvml.nvmlDeviceGetHandleByIndex(index)
            nvml.nvmlDeviceRegisterEvents(device, kind, self._events)
        except nvml.NVMLError:
            return
        self._heard[index] = _Heard()

    def _take(self, nvml: Any) -> None:
        wait = getattr(nvml, "nvmlEventSetWait_v2", nvml.nvmlEventSetWait)
        for _ in range(MOST):
            event = wait(self._events, 0)  # raises the timeout when there are no more
            if event.eventType != nvml.nvmlEventTypeXidCriticalError:
                continue
            heard = self._heard.get(int(nvml.nvmlDeviceGetIndex(event.device)))
            if heard is not None:
                heard.last, heard.at_ns = int(event.eventData) & 0xFFFF, time.monotonic_ns()
                heard.count += 1
