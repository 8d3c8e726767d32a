"""Reads the gauges of the host while there are ranks: often while somebody looks, otherwise rarely.

A child (`gauges.host`), which may be left behind, reads everything except GPUs, which `gpu_watch`
reads. Without ranks there is no child.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from frtop_probe.agent.gauges.gauge_table import GaugeTable
from frtop_probe.agent.gauges.gpu_watch import INTEREST_S, PERIOD_S, GpuWatch
from frtop_probe.agent.rank_tracker import RankTracker
from frtop_probe.gauges.readings import HostReading, SubjectReading, host_reading_from
from frtop_probe.proc.pausing_child import PausingChild

IDLE_PERIOD_S: Final = 10.0
"""Pause while nobody looks. A screen that opens later can thus see the past."""
_STEP_S: Final = 0.5
HANGS: Final = "the program that reads the host's gauges does not answer"
FAILS: Final = "the program that reads the host's gauges ends or does not start"


class HostWatch:
    """Keeps the gauges of the host."""

    def __init__(
        self,
        tracker: RankTracker,
        last_asked: Callable[[], float],
        gpus: GpuWatch,
        worker: HostWorker | None = None,
        *,
        period_s: float = PERIOD_S,
        idle_period_s: float = IDLE_PERIOD_S,
    ) -> None:
        """`period_s` applies while somebody looks, `idle_period_s` while nobody does.

        `last_asked` returns when an operator last asked for anything, by `time.monotonic()`.
        """
        self._tracker = tracker
        self._last_asked = last_asked
        self._gpus = gpus
        self._worker = worker if worker is not None else HostWorker()
        self._period_s, self._idle_period_s = period_s, idle_period_s
        self.table = GaugeTable()

    async def run(self) -> None:
        """Works until it is cancelled."""
        last = 0.0
        try:
            while True:
                now = time.monotonic()
                if now - last >= self._pause_s(now):
                    last = now
                    try:
                        await self._step()
                    except Exception as error:  # noqa: BLE001 - ranks must still be followed
                        self._tracker.note(f"reading the gauges of the host failed: {error!r}")
                await asyncio.sleep(min(_STEP_S, self._period_s))
        finally:
            await self._worker.close()

    def _with_memory(self, subject: SubjectReading) -> SubjectReading:
        """Adds a rank's memory on its GPUs, which the driver knows without asking the rank."""
        size = self._gpus.memory.get(subject.pids[0]) if subject.kind == "rank" else None
        if size is None:
            return subject
        return replace(subject, values={**subject.values, "gpu_mem": size})

    def _pause_s(self, now: float) -> float:
        looked_at = now - self._last_asked() < INTEREST_S
        ranks = self._tracker.ranks.values()
        often = looked_at or any(rank.lives and rank.record for rank in ranks)
        return self._period_s if often else self._idle_period_s

    async def _step(self) -> None:
        living = {rank.pid: rank.key for rank in self._tracker.ranks.values() if rank.lives}
        if not living:
            if self._worker.runs:
                await self._worker.stop()
            return
        reading = await self._worker.read(living)
        subjects = (*map(self._with_memory, reading.subjects), *self._gpus.subjects)
        self.table.add(reading.at_ns, subjects, (*reading.notes, self._gpus.note), living.get)


class HostWorker(PausingChild):
    """Reads a host through one child, one reading at a time."""

    module = "frtop_probe.gauges.host"
    hangs = HANGS
    fails = FAILS

    async def read(self, pids: Iterable[int]) -> HostReading:
        """Reads all sources, and these ranks with their children; notes problems of the child."""
        reading = await self.ask({"pids": list(pids)}, host_reading_from)
        if reading is None:
            return HostReading(time.monotonic_ns(), notes=(self._problem,))
        self._well()
        return reading
