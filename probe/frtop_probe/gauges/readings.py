"""The result of one reading: plain values that a child sends as JSON.

All gauges, including GPUs', have the names and units of docs/features/gauges.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from frtop_probe.proc.kernel_files import printable

MAX_SUBJECTS: Final = 192
"""Most subjects of one reading: 64 ranks, 64 GPUs, and 64 others."""
MAX_GAUGES: Final = 24
MAX_GPUS: Final = 64
_HIGHEST: Final = 2**62


@dataclass(frozen=True, slots=True)
class SubjectReading:
    """One subject with its known figures at one time.

    Attributes:
        kind, name: as in `wire.GaugeSubject`; together they are unique.
        values: by gauge; non-negative whole numbers.
        detail: which device it is, if the name does not say.
        problem: why there are no figures.
        pids: those of the requested ranks that use it.
    """

    kind: str
    name: str
    values: Mapping[str, int] = field(default_factory=dict)
    detail: str = ""
    problem: str = ""
    pids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU as NVML shows it, with its known figures.

    Attributes:
        index: as nvidia-smi counts; CUDA may count differently.
        values: by gauge, see `SubjectReading`.
        error: why nothing more is known, for instance because the GPU is lost.
        mig: it is divided; all figures then cover all parts together.
        pids: processes that compute on it, by NVML's pids; None if nobody asked or NVML has no
            list. `pid_bytes` is how much of its memory each one uses, -1 if unknown.
        xid_at_ns: when the last XID error was found, by the monotonic clock; 0 for none.
    """

    index: int
    uuid: str = ""
    name: str = ""
    error: str = ""
    values: Mapping[str, int] = field(default_factory=dict)
    mig: bool = False
    pids: tuple[int, ...] | None = None
    pid_bytes: tuple[int, ...] = ()
    xid_at_ns: int = 0


@dataclass(frozen=True, slots=True)
class GpusReading:
    """All GPUs of a host at `at_ns` (monotonic clock); `problem` says why there are none."""

    at_ns: int = 0
    gpus: tuple[GpuReading, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class HostReading:
    """All subjects of a host at `at_ns` (monotonic clock); `notes` name what is missing."""

    at_ns: int = 0
    subjects: tuple[SubjectReading, ...] = ()
    notes: tuple[str, ...] = ()


def host_reading_from(data: Mapping[str, Any]) -> HostReading:
    """Converts JSON data back into a reading.

    Raises:
        KeyError, TypeError, ValueError: `data` is not a reading.
    """
    subjects = tuple(map(_subject_from, data["subjects"][:MAX_SUBJECTS]))
    return HostReading(_time(data), subjects, tuple(map(_text, data["notes"][:16])))


def gpus_reading_from(data: Mapping[str, Any]) -> GpusReading:
    gpus = data["gpus"][:MAX_GPUS]
    return GpusReading(_time(data), tuple(map(_gpu_from, gpus)), str(data["problem"]))


def known(**values: int | None) -> dict[str, int]:
    """Returns the known and plausible values."""
    return {
        name: value
        for name, value in values.items()
        if value is not None and 0 <= value <= _HIGHEST
    }


def _time(data: Mapping[str, Any]) -> int:
    at_ns = int(data["at_ns"])
    if not 0 <= at_ns <= _HIGHEST:
        raise ValueError("a time that no clock has")
    return at_ns


def _subject_from(data: Mapping[str, Any]) -> SubjectReading:
    pids = tuple(map(int, data["pids"]))
    texts = (_text(data[name]) for name in ("kind", "name", "detail", "problem"))
    kind, name, detail, problem = texts
    return SubjectReading(kind, name, _values_of(data), detail, problem, pids)


def _gpu_from(data: Mapping[str, Any]) -> GpuReading:
    pids = data["pids"]
    checked = {"values": _values_of(data), "pid_bytes": tuple(data["pid_bytes"])}
    return GpuReading(**{**data, **checked, "pids": None if pids is None else tuple(pids)})


def _values_of(data: Mapping[str, Any]) -> dict[str, int]:
    found = data["values"]
    if not isinstance(found, dict) or not all(type(one) is int for one in found.values()):
        raise ValueError("a gauge is not a whole number")
    return known(**{printable(name): found[name] for name in list(found)[:MAX_GAUGES]})


def _text(value: Any) -> str:
    return printable(str(value))
