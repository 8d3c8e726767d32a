"""Reads NVIDIA GPUs through NVML. Every call may hang in the driver, so only the child calls it.

frtop does not depend on `pynvml` (nvidia-ml-py): if it is missing, the reading says so.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from frtop_probe.gauges.readings import MAX_GPUS, GpuReading, GpusReading, known
from frtop_probe.proc.kernel_files import printable

MODULE: Final = "pynvml"
NO_BINDING: Final = "nvidia-ml-py is not installed beside frtop; pip install 'frtop[gpu]'"
NOT_SENT: Final = "frtop sends no nvidia-ml-py through a shell; install 'frtop[gpu]' on that host"
_HIGHEST: Final = 2**62
_LASTING: Final = ("GpuIsLost", "ResetRequired")
"""GPU errors after which no other value is valid."""
MOST: Final = 64
"""Most events per reading: a broken GPU may report a flood of them."""


class NvmlReader:
    """Reads all GPUs; keeps NVML open between readings, because opening it is slow."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._xids = XidErrors()

    def load(self) -> None:
        """Imports the binding if it is there; does not call the driver."""
        with contextlib.suppress(Exception):  # `read` says what is wrong with it
            importlib.import_module(MODULE)

    def read(self, *, processes: bool) -> GpusReading:
        """Reads all GPUs.

        Args:
            processes: Whether to ask for the processes on each GPU, which is the slowest call.
        """
        try:
            nvml = self._open()
            count = min(MAX_GPUS, int(nvml.nvmlDeviceGetCount()))
            self._xids.listen(nvml, count)
            gpus = tuple(self._gpu(nvml, index, processes=processes) for index in range(count))
        except ModuleNotFoundError:
            why = NOT_SENT if sys.flags.no_site else NO_BINDING
            return GpusReading(time.monotonic_ns(), problem=why)
        except Exception as error:  # noqa: BLE001 - a driver or an old binding failed; the reading says so
            self._nvml = None  # the driver may have been reloaded
            return GpusReading(time.monotonic_ns(), problem=f"NVML: {printable(str(error))}")
        return GpusReading(time.monotonic_ns(), gpus)

    def _open(self) -> Any:
        if self._nvml is None:
            nvml = importlib.import_module(MODULE)
            nvml.nvmlInit()
            self._nvml = nvml
            self._xids = XidErrors()  # the old ones belong to a closed NVML
        return self._nvml

    def _gpu(self, nvml: Any, index: int, *, processes: bool) -> GpuReading:
        try:
            device = nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError as error:
            return GpuReading(index, error=printable(str(error)))
        lost: list[str] = []

        def value(read: Callable[[], Any]) -> Any:
            """Returns a call's result; None if the GPU, driver or binding does not offer it."""
            try:
                return None if lost else read()
            except nvml.NVMLError as error:
                if type(error).__name__.endswith(_LASTING):
                    lost.append(printable(str(error)))
            except (AttributeError, ValueError):  # an older binding; a name that is not UTF-8
                pass
            return None

        use = value(lambda: nvml.nvmlDeviceGetUtilizationRates(device).gpu)
        memory = value(lambda: nvml.nvmlDeviceGetMemoryInfo(device))
        mode = value(lambda: nvml.nvmlDeviceGetMigMode(device))
        reasons = value(lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(device))
        if reasons is None:  # the name before driver 535
            reasons = value(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device))
        figures = {
            "use": 10 * use if isinstance(use, int) and use <= 100 else None,
            "power_mw": value(lambda: nvml.nvmlDeviceGetPowerUsage(device)),
            "power_limit_mw": value(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(device)),
            "mem_used": memory and memory.used,
            "mem_total": memory and memory.total,
            "sm_mhz": value(lambda: nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_SM)),
            "max_sm_mhz": value(lambda: nvml.nvmlDeviceGetMaxClockInfo(device, nvml.NVML_CLOCK_SM)),
            "throttle": reasons,
            "temperature": value(
                lambda: nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU)
            ),
            "xids": self._xids.count(index),
            "xid": self._xids.last(index) or None,
        }
        running = value(lambda: _processes(nvml, device)) if processes else None
        return GpuReading(
            index,
            printable(value(lambda: nvml.nvmlDeviceGetUUID(device)) or ""),
            printable(value(lambda: nvml.nvmlDeviceGetName(device)) or ""),
            lost[0] if lost else "",
            known(**{name: _number(one) for name, one in figures.items()}),
            mig=bool(mode and mode[0]),
            pids=None if running is None else tuple(running),
            pid_bytes=() if running is None else tuple(running.values()),
            xid_at_ns=self._xids.at_ns(index),
        )


def _processes(nvml: Any, device: Any) -> dict[int, int]:
    """Processes that compute on a GPU, with their memory on it; -1 if unknown.

    Drivers offer different versions of the call.
    """
    for name in ("_v3", "_v2", ""):
        with contextlib.suppress(nvml.NVMLError_FunctionNotFound, AttributeError):
            found = getattr(nvml, f"nvmlDeviceGetComputeRunningProcesses{name}")(device)
            used = {int(one.pid): _number(getattr(one, "usedGpuMemory", None)) for one in found}
            return {pid: -1 if used[pid] is None else used[pid] or 0 for pid in sorted(used)}
    raise nvml.NVMLError(nvml.NVML_ERROR_FUNCTION_NOT_FOUND)


def _number(value: Any) -> int | None:
    """Returns a plausible number, else None: a driver may return a value for "not available"."""
    return value if isinstance(value, int) and 0 <= value < _HIGHEST else None


@dataclass(slots=True)
class _Errors:
    last: int = 0
    count: int = 0
    at_ns: int = 0


class XidErrors:
    """XID errors since the first reading: the driver reports them to every listener.

    Listening needs no rights. Earlier errors are only in the kernel's log, which usually only root
    can read.
    """

    def __init__(self) -> None:
        self._events: Any = None
        self._errors: dict[int, _Errors] = {}

    def listen(self, nvml: Any, count: int) -> None:
        """Starts to listen on its first call; takes new events without waiting.

        Skips GPUs, drivers and bindings that do not offer events.
        """
        try:
            if self._events is None:
                self._events = nvml.nvmlEventSetCreate()
                for index in range(count):
                    self._register(nvml, index)
            if self._errors:
                self._take(nvml)
        except (nvml.NVMLError, AttributeError):
            return  # no more events, or the call is missing

    def last(self, index: int) -> int:
        """Returns the number of the last error; 0 if there was none."""
        return self._errors[index].last if index in self._errors else 0

    def count(self, index: int) -> int | None:
        """Number of errors; None if we do not listen to this GPU."""
        return self._errors[index].count if index in self._errors else None

    def at_ns(self, index: int) -> int:
        """When the last error was found."""
        return self._errors[index].at_ns if index in self._errors else 0

    def _register(self, nvml: Any, index: int) -> None:
        kind = nvml.nvmlEventTypeXidCriticalError
        try:
            device = nvml.nvmlDeviceGetHandleByIndex(index)
            nvml.nvmlDeviceRegisterEvents(device, kind, self._events)
        except nvml.NVMLError:
            return
        self._errors[index] = _Errors()

    def _take(self, nvml: Any) -> None:
        wait = getattr(nvml, "nvmlEventSetWait_v2", nvml.nvmlEventSetWait)
        for _ in range(MOST):
            event = wait(self._events, 0)  # raises a timeout if there are no more
            if event.eventType != nvml.nvmlEventTypeXidCriticalError:
                continue
            errors = self._errors.get(int(nvml.nvmlDeviceGetIndex(event.device)))
            if errors is not None:
                errors.last, errors.at_ns = int(event.eventData) & 0xFFFF, time.monotonic_ns()
                errors.count += 1
