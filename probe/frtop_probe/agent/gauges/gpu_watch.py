"""Reads the gauges of the GPUs that ranks use, while somebody looks or a black box may be written.

On a host without NVIDIA's driver this costs one look at a file every few seconds; on a host whose
ranks have no GPU open, one look at their descriptors. A child (`gauges`) makes all calls to NVML.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from frtop_probe import wire
from frtop_probe.agent.rank_tracker import RankTracker
from frtop_probe.agent.tracked_rank import TrackedRank
from frtop_probe.gauges.devices import (
    DEVICES,
    PROC,
    gpus_by_pid,
    has_driver,
    opens_device,
    sees_all_pids,
)
from frtop_probe.gauges.readings import (
    GpuReading,
    GpusReading,
    SubjectReading,
    gpus_reading_from,
    known,
)
from frtop_probe.proc.pausing_child import PausingChild

PERIOD_S: Final = 2.0
LIST_READINGS: Final = 6
"""Every sixth reading asks NVML for processes, as does the one after a rank opened a device."""
SEARCH_S: Final = 6.0
"""Pause between two looks at the descriptors of a rank that has no GPU open."""
INTEREST_S: Final = 30.0
"""Like `unprepared.watch.INTEREST_S`."""
DID_NOT_RETURN: Final = "NVML does not answer: a call hangs in the driver"
NO_ANSWER: Final = "the program that reads NVML ends or does not start"
SAMPLES: Final = 6
"""Samples sent each time: a state that lasts over all of them is no accident."""
SAMPLE_NS: Final = 1_500_000_000
"""Least time between two of them, however often GPUs are read: together they cover some seconds."""
GAP_NS: Final = 15_000_000_000
"""Samples on both sides of a longer pause do not show that something lasted in between."""


class GpuWatch:
    """Gives GPU gauges to each rank that uses a GPU."""

    def __init__(
        self,
        tracker: RankTracker,
        last_asked: Callable[[], float],
        worker: GpuWorker | None = None,
        *,
        period_s: float = PERIOD_S,
        proc: Path = PROC,
        devices: Path = DEVICES,
    ) -> None:
        """`last_asked` returns when an operator last asked for anything, by `time.monotonic()`."""
        self._tracker = tracker
        self._last_asked = last_asked
        self._worker = worker if worker is not None else GpuWorker()
        self._period_s = period_s
        self._proc, self._devices = proc, devices
        self._all_pids = sees_all_pids(proc)
        self._windows = GpuWindows()
        self._opens: dict[tuple[int, int], bool] = {}
        self._mine: dict[int, tuple[int, ...]] = {}
        self._reasons: dict[int, str] = {}
        self._search_at = 0.0
        self._until_list = 0
        self.subjects: tuple[SubjectReading, ...] = ()
        """The GPUs of the last reading, if any."""
        self.memory: dict[int, int] = {}
        """GPU memory of a rank in bytes, by pid, where known."""
        self.note = ""
        """Why there are no gauges, or ""."""

    async def run(self) -> None:
        """Works until it is cancelled."""
        try:
            while True:
                begin = time.monotonic()
                try:
                    await self._step(begin)
                except Exception as error:  # noqa: BLE001 - ranks must still be followed
                    self._tracker.note(f"reading the gauges of GPUs failed: {error!r}")
                await asyncio.sleep(max(0.1, self._period_s - (time.monotonic() - begin)))
        finally:
            await self._worker.close()

    async def _step(self, now: float) -> None:
        ranks = self._ranks_with_gpus(now) if self._is_wanted(now) else []
        if not ranks:
            self.subjects, self.memory, self.note = (), {}, ""
            if self._worker.runs:
                await self._worker.stop()
            return
        processes = self._until_list <= 0
        self._until_list = LIST_READINGS - 1 if processes else self._until_list - 1
        reading = await self._worker.read(processes=processes)
        self._windows.add(reading, processes=processes)
        if reading.problem:
            self._until_list = 0
        if processes:
            self._match([rank.pid for rank in ranks])
        self.note = reading.problem
        self.subjects = () if reading.problem else self._windows.subjects(self._users())
        memory = {} if reading.problem else self._windows.memory
        self.memory = {pid: memory[pid] for pid in self._mine if pid in memory}
        for rank in ranks:
            if rank.lives:  # it may have ended since
                rank.gauges = self._gauges_of(rank.pid, reading.problem)

    def _is_wanted(self, now: float) -> bool:
        looked_at = now - self._last_asked() < INTEREST_S
        return looked_at or any(rank.lives and rank.record for rank in self._all())

    def _all(self) -> list[TrackedRank]:
        return list(self._tracker.ranks.values())

    def _ranks_with_gpus(self, now: float) -> list[TrackedRank]:
        """Returns living ranks with an open device; if we may not look, NVML's list decides."""
        if not has_driver(self._devices):
            return []
        living = {(rank.pid, rank.start_ticks): rank for rank in self._all() if rank.lives}
        known = {one: opens for one, opens in self._opens.items() if one in living}
        again = now >= self._search_at
        if again:
            self._search_at = now + SEARCH_S
        for one in living:
            if one not in known or (again and not known[one]):
                opens = opens_device(one[0], self._proc, self._devices) is not False
                if opens:
                    self._until_list = 0
                known[one] = opens
        self._opens = known
        return [rank for one, rank in living.items() if known[one]]

    def _match(self, pids: list[int]) -> None:
        """Assigns GPUs to ranks by the process list that was just read."""
        self._mine, self._reasons = gpus_by_pid(
            self._windows.listed,
            pids,
            all_pids=self._all_pids,
            opens=lambda pid: opens_device(pid, self._proc, self._devices),
        )

    def _users(self) -> dict[int, list[int]]:
        """Returns the pids of ranks by GPU."""
        users: dict[int, list[int]] = {}
        for pid, indices in self._mine.items():
            for index in indices:
                users.setdefault(index, []).append(pid)
        return users

    def _gauges_of(self, pid: int, problem: str) -> wire.Gauges:
        gpus = tuple(self._windows.gpu(index) for index in self._mine.get(pid, ()))
        return wire.Gauges(gpus, problem or self._reasons.get(pid, ""))


class GpuWorker(PausingChild):
    """Reads gauges through one child, one reading at a time."""

    module = "frtop_probe.gauges"
    hangs = DID_NOT_RETURN
    fails = NO_ANSWER

    async def read(self, *, processes: bool = False) -> GpusReading:
        """Reads all GPUs; never raises for GPU problems.

        While it pauses after a failure, `problem` is that failure.
        """
        reading = await self.ask({"processes": processes}, gpus_reading_from)
        if reading is not None and not reading.problem:
            self._well()
            return reading
        if reading is not None:
            self._lines.abandon()  # it would run for nothing
            self._pause(reading.problem)
        return GpusReading(time.monotonic_ns(), problem=self._problem)


@dataclass(slots=True)
class _Window:
    """The samples of one GPU. Its process list is read less often than the rest."""

    gpu: GpuReading
    samples: deque[wire.GpuSample] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    idle_mw: int | None = None
    pids: tuple[int, ...] | None = None
    pid_bytes: tuple[int, ...] = ()


class GpuWindows:
    """The GPUs of one host, from the readings so far."""

    def __init__(self) -> None:
        self._windows: dict[int, _Window] = {}

    def add(self, reading: GpusReading, *, processes: bool) -> None:
        """Adds a reading; `processes` says whether it asked for processes."""
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
            last = list(window.samples)[-2:]
            if len(last) > 1 and last[1].at_ns - last[0].at_ns < SAMPLE_NS:
                window.samples.pop()
            window.samples.append(_sample(gpu, reading.at_ns))

    @property
    def listed(self) -> dict[int, tuple[int, ...] | None]:
        """Pids in NVML's last list, by GPU index; None where NVML has no list."""
        return {index: window.pids for index, window in self._windows.items()}

    @property
    def memory(self) -> dict[int, int]:
        """Bytes on all GPUs together, by pid, from the last process lists."""
        found: dict[int, int] = {}
        for window in self._windows.values():
            for pid, size in zip(window.pids or (), window.pid_bytes, strict=False):
                if size >= 0:
                    found[pid] = found.get(pid, 0) + size
        return found

    def gpu(self, index: int) -> wire.Gpu:
        """One GPU with its last samples."""
        window = self._windows[index]
        gpu, values = window.gpu, window.gpu.values
        return wire.Gpu(
            index,
            gpu.uuid,
            gpu.name,
            power_limit_mw=values.get("power_limit_mw"),
            memory_total=values.get("mem_total"),
            idle_mw=window.idle_mw,
            processes=len(window.pids or ()),
            mig=gpu.mig,
            error=gpu.error,
            samples=tuple(window.samples),
            max_sm_mhz=values.get("max_sm_mhz"),
            xid=values.get("xid", 0),
            xid_at_ns=gpu.xid_at_ns,
        )

    def subjects(self, users: Mapping[int, Collection[int]]) -> tuple[SubjectReading, ...]:
        """Returns all GPUs as gauge subjects; `users` are pids of ranks by GPU index."""
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
        **gpu.values,
        idle_mw=window.idle_mw,
        processes=None if pids is None else len(pids),
        others=None if others is None else len(others),
        others_mem=sum(taken) if taken else None,
    )
    detail = f"{gpu.name}, divided (MIG)" if gpu.mig else gpu.name
    return SubjectReading("gpu", str(gpu.index), values, detail, gpu.error, ranks)


def _sample(gpu: GpuReading, at_ns: int) -> wire.GpuSample:
    use = gpu.values.get("use")
    names = ("power_mw", "mem_used", "sm_mhz", "throttle", "temperature")
    return wire.GpuSample(at_ns, use and use // 10, *map(gpu.values.get, names))


def _note_idle(window: _Window, gpu: GpuReading) -> None:
    """Power is averaged over a second: just after a kernel it is not yet that of an idle GPU."""
    before = window.samples[-1].utilization if window.samples else None
    power_mw = gpu.values.get("power_mw")
    if before == 0 and gpu.values.get("use") == 0 and power_mw is not None:
        lowest = window.idle_mw
        window.idle_mw = power_mw if lowest is None else min(lowest, power_mw)
