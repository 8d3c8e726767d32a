"""What one request brings: plain values, which cross the pipe from the child as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

MAX_GPUS: Final = 64
MAX_TEXT: Final = 96
"""Characters of a name: NVML's own are shorter."""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU at one time. None: the driver does not say, and each value may be missing alone.

    Attributes:
        index: as nvidia-smi counts; CUDA may count differently.
        error: why nothing more is known of it, such as that it is lost.
        utilization: percent of NVML's last sampling period in which any kernel ran.
        power_mw, power_limit_mw: milliwatts; the limit is the enforced one.
        memory_used, memory_total: bytes.
        throttle: bits of NVML's reasons why clocks are not higher.
        mig: it is divided; what is said of it is then of all its parts.
        pids: processes that compute on it, as NVML counts them; not asked for each time.
        pid_bytes: memory of it that each of `pids` has, -1 where that is not known.
        max_sm_mhz: the highest clock it can have.
        temperature: degrees Celsius.
        xid: the last XID error since this child listens, 0 for none; `xids` counts them, and
            `xid_at_ns` is when the last one was found (monotonic clock). None: not offered.
    """

    index: int
    uuid: str = ""
    name: str = ""
    error: str = ""
    utilization: int | None = None
    power_mw: int | None = None
    power_limit_mw: int | None = None
    memory_used: int | None = None
    memory_total: int | None = None
    sm_mhz: int | None = None
    throttle: int | None = None
    mig: bool = False
    pids: tuple[int, ...] | None = None
    pid_bytes: tuple[int, ...] = ()
    max_sm_mhz: int | None = None
    temperature: int | None = None
    xid: int = 0
    xids: int | None = None
    xid_at_ns: int = 0


@dataclass(frozen=True, slots=True)
class GaugeReading:
    """All GPUs of a host at `at_ns` (monotonic clock); `problem` says why there are none."""

    at_ns: int = 0
    gpus: tuple[GpuReading, ...] = ()
    problem: str = ""


def reading_from(data: Mapping[str, Any]) -> GaugeReading:
    """Reads what JSON made of a reading.

    Raises:
        KeyError, TypeError: it is none.
    """
    gpus = data["gpus"][:MAX_GPUS]
    return GaugeReading(int(data["at_ns"]), tuple(map(_gpu_from, gpus)), str(data["problem"]))


def _gpu_from(data: Mapping[str, Any]) -> GpuReading:
    pids = data["pids"]
    known = {"pids": None if pids is None else tuple(pids), "pid_bytes": tuple(data["pid_bytes"])}
    return GpuReading(**{**data, **known})
