"""The last samples of each GPU, and the lowest power that it was seen idle at."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from frtop_probe import wire
from frtop_probe.gauges.host.subjects import SubjectReading, known
from frtop_probe.gauges.readings import GaugeReading, GpuReading

SAMPLES: Final = 6
"""Sent each time: what lasts over all of them is no accident of one sample."""
GAP_NS: Final = 15_000_000_000
"""Samples on both sides of a longer pause show nothing that lasted: nobody looked in between."""


@dataclass(slots=True)
class _Window:
    """What is remembered of one GPU. Its list of processes is read less often than the rest."""

    gpu: GpuReading
    samples: deque[wire.GpuSample] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    idle_mw: int | None = None
    pids: tuple[int, ...] | None = None
    pid_bytes: tuple[int, ...] = ()


class GpuWindows:
    """The GPUs of one host, as far as readings have shown them."""

    def __init__(self) -> None:
        self._windows: dict[int, _Window] = {}

    def add(self, reading: GaugeReading, *, processes: bool) -> None:
        """Takes in a reading; with `processes` one that has asked for them."""
        for gpu in reading.gpus:
            window = self._windows.get(gpu.index)
            if window is None or (gpu.uuid and gpu.uuid != window.gpu.uuid):
                window = self._windows[gpu.index] = _Window(gpu)
            window.gpu = gpu
            if processes:
                window.pids, window.pid_bytes = gpu.pids, gpu.pid_bytes
            if window.samples and reading.at_ns - window.samples[-1].at_ns > GAP_NS:
                window.samples.clear()
            _note_idle(window, gpu)
            window.samples.append(_sample(gpu, reading.at_ns))

    @property
    def listed(self) -> dict[int, tuple[int, ...] | None]:
        """By index, the pids of NVML's last list; None where it had none."""
        return {index: window.pids for index, window in self._windows.items()}

    @property
    def memory(self) -> dict[int, int]:
        """By pid, the bytes that it has on all GPUs together, by the last lists of processes."""
        found: dict[int, int] = {}
        for window in self._windows.values():
            for pid, size in zip(window.pids or (), window.pid_bytes, strict=False):
                if size >= 0:
                    found[pid] = found.get(pid, 0) + size
        return found

    def gpu(self, index: int) -> wire.Gpu:
        """One GPU with its last samples."""
        window = self._windows[index]
        gpu = window.gpu
        return wire.Gpu(
            index,
            gpu.uuid,
            gpu.name,
            power_limit_mw=gpu.power_limit_mw,
            memory_total=gpu.memory_total,
            idle_mw=window.idle_mw,
            processes=len(window.pids or ()),
            mig=gpu.mig,
            error=gpu.error,
            samples=tuple(window.samples),
            max_sm_mhz=gpu.max_sm_mhz,
            xid=gpu.xid,
            xid_at_ns=gpu.xid_at_ns,
        )

    def subjects(self, users: Mapping[int, Collection[int]]) -> tuple[SubjectReading, ...]:
        """All GPUs as subjects of gauges.

        Args:
            users: by index, the pids of the ranks that are known to be on it.
        """
        return tuple(
            _subject(window, tuple(users.get(index, ())))
            for index, window in sorted(self._windows.items())
        )


def _subject(window: _Window, ranks: tuple[int, ...]) -> SubjectReading:
    gpu, pids = window.gpu, window.pids
    others = set(pids) - set(ranks) if pids is not None and ranks else None
    memory = dict(zip(pids or (), window.pid_bytes, strict=False))
    taken = [memory[pid] for pid in others or () if memory.get(pid, -1) >= 0]
    values = known(
        use=None if gpu.utilization is None else 10 * gpu.utilization,
        power_mw=gpu.power_mw,
        power_limit_mw=gpu.power_limit_mw,
        idle_mw=window.idle_mw,
        mem_used=gpu.memory_used,
        mem_total=gpu.memory_total,
        sm_mhz=gpu.sm_mhz,
        max_sm_mhz=gpu.max_sm_mhz,
        throttle=gpu.throttle,
        temperature=gpu.temperature,
        processes=None if pids is None else len(pids),
        others=None if others is None else len(others),
        others_mem=sum(taken) if taken else None,
        xids=gpu.xids,
        xid=gpu.xid or None,
    )
    detail = f"{gpu.name}, divided (MIG)" if gpu.mig else gpu.name
    return SubjectReading("gpu", str(gpu.index), values, detail, gpu.error, ranks)


def _sample(gpu: GpuReading, at_ns: int) -> wire.GpuSample:
    return wire.GpuSample(
        at_ns,
        gpu.utilization,
        gpu.power_mw,
        gpu.memory_used,
        gpu.sm_mhz,
        gpu.throttle,
        gpu.temperature,
    )


def _note_idle(window: _Window, gpu: GpuReading) -> None:
    """Power is an average over a second: just after a kernel it is not that of an idle GPU."""
    before = window.samples[-1].utilization if window.samples else None
    if before == 0 and gpu.utilization == 0 and gpu.power_mw is not None:
        known = window.idle_mw
        window.idle_mw = gpu.power_mw if known is None else min(known, gpu.power_mw)
