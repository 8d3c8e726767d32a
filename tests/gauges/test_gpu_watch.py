"""Ranks that use a GPU get its gauges, and nobody else costs anything."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.ring_builder import RingBuilder
from agent.unprepared_fakes import candidate, job
from frtop_probe import wire
from frtop_probe.agent.gauges.gpu_watch import (
    DID_NOT_RETURN,
    GAP_NS,
    SAMPLES,
    GpuWatch,
    GpuWindows,
    GpuWorker,
)
from frtop_probe.agent.rank_tracker import RankTracker
from frtop_probe.gauges.devices import NOT_LISTED
from frtop_probe.gauges.readings import GpuReading, GpusReading
from gauges.standin import HANG, Gpus, needs_standin, rank_with
from waiting import wait_for_async


class Machine:
    """A tracker, and processes that are ranks for it; /dev is a folder."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.devices = folder / "dev"
        self.devices.mkdir()
        (self.devices / "nvidiactl").touch()
        self.tracker = RankTracker([folder])
        self.stack = stack
        self.asked = -math.inf
        self.worker = GpuWorker(deadline_s=1.0, pause_s=60)

    def rank(self, *names: str) -> Any:
        process = self.stack.enter_context(rank_with(self.devices, *names))
        found = candidate(process.pid, rank=len(self.tracker.ranks))
        rank = self.tracker.add_unprepared(found, job(found))
        assert rank is not None
        return rank

    @asynccontextmanager
    async def watched(self, period_s: float = 0.1) -> AsyncIterator[None]:
        watch = GpuWatch(
            self.tracker, lambda: self.asked, self.worker, period_s=period_s, devices=self.devices
        )
        task = asyncio.create_task(watch.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self.tracker.clear()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    monkeypatch.setattr("frtop_probe.agent.gauges.gpu_watch.SAMPLE_NS", 0)
    with ExitStack() as stack:
        yield Machine(tmp_path, stack)


@needs_standin
async def test_a_rank_has_the_gauges_of_its_gpu_while_somebody_asks(
    gpus: Gpus, machine: Machine
) -> None:
    mine, without = machine.rank("nvidia0", "nvidia1"), machine.rank("null")
    gpus.add(pids="")
    gpus.add(pids=mine.pid)
    async with machine.watched(period_s=0.05):
        await asyncio.sleep(0.3)
        assert not machine.worker.runs  # nobody asks
        machine.asked = math.inf
        await wait_for_async(lambda: mine.gauges and mine.gauges.gpus, "gauges")
        (gpu,) = mine.gauges.gpus
        assert (gpu.index, gpu.uuid, gpu.processes, gpu.power_limit_mw) == (1, "GPU-1", 1, 700_000)
        await wait_for_async(lambda: len(mine.gauges.gpus[0].samples) == SAMPLES, "samples")
        assert {(one.utilization, one.power_mw) for one in mine.gauges.gpus[0].samples} == {
            (100, 96_000)
        }
        assert without.gauges is None
        assert mine.full().gauges == mine.gauges
        gpus.set(1, power=HANG)
        await wait_for_async(lambda: mine.gauges.note == DID_NOT_RETURN, "that it hangs")
        assert mine.gauges.gpus[0].samples  # the last ones, which have their time


@needs_standin
async def test_a_rank_that_nvml_does_not_list_is_undecided(gpus: Gpus, machine: Machine) -> None:
    mine = machine.rank("nvidia0")
    gpus.add(pids=os.getpid())
    (machine.devices / "nvidia0").touch()
    with (machine.devices / "nvidia0").open():  # so that we are a process with a device, too
        machine.asked = math.inf
        async with machine.watched():
            await wait_for_async(lambda: mine.gauges, "gauges")
            assert mine.gauges == wire.Gauges((), NOT_LISTED)


@needs_standin
async def test_after_a_failure_the_list_of_processes_is_asked_for_at_once(
    gpus: Gpus, machine: Machine
) -> None:
    mine = machine.rank("nvidia0")
    gpus.set(None, init="!9")
    gpus.add(pids=mine.pid)
    machine.worker = GpuWorker(deadline_s=1.5, pause_s=0.01)
    machine.asked = math.inf
    async with machine.watched(period_s=0.5):
        await wait_for_async(lambda: mine.gauges, "gauges")
        assert mine.gauges == wire.Gauges((), "NVML: Driver Not Loaded")
        gpus.set(None, init=0)
        await wait_for_async(lambda: not mine.gauges.note, "no note")
        assert len(mine.gauges.gpus) == 1
        assert len(mine.gauges.gpus[0].samples) == 1


async def test_a_host_without_a_device_open_starts_no_child(machine: Machine) -> None:
    machine.rank("null")
    machine.asked = math.inf
    async with machine.watched():
        await asyncio.sleep(0.5)
        assert not machine.worker.runs


def reading(at_s: float, use: int, power: int, pids: Any = None, **more: Any) -> GpusReading:
    values = {"use": 10 * use, "power_mw": power, **more}
    sizes = (3, 4, -1) if pids else ()
    gpu = GpuReading(0, "GPU-0", "X", values=values, pids=pids, pid_bytes=sizes)
    return GpusReading(int(at_s * 1e9), (gpu,))


def test_idle_power_is_the_lowest_of_a_gpu_that_was_idle_before_too() -> None:
    windows = GpuWindows()
    for second, (use, power) in enumerate([(100, 500), (0, 400), (0, 80), (0, 90), (50, 60)]):
        windows.add(reading(second, use, power), processes=False)
    assert windows.gpu(0).idle_mw == 80


def test_samples_on_both_sides_of_a_pause_are_not_of_one_window() -> None:
    windows = GpuWindows()
    for second in range(0, 18, 2):
        windows.add(reading(second, 100, 90, pids=(7, 8)), processes=second == 0)
    assert len(windows.gpu(0).samples) == SAMPLES
    assert windows.gpu(0).processes == 2
    windows.add(reading(18 + GAP_NS / 1e9, 100, 90), processes=False)
    assert len(windows.gpu(0).samples) == 1


def test_samples_cover_as_long_where_gpus_are_read_every_second() -> None:
    windows = GpuWindows()
    for second in range(20):
        windows.add(reading(second, second, 90), processes=False)
    samples = windows.gpu(0).samples
    assert samples[-1].utilization == 19
    assert samples[-1].at_ns - samples[0].at_ns >= 9e9


def test_who_else_is_on_a_gpu_is_told_where_a_rank_is_known_to_be_on_it() -> None:
    windows = GpuWindows()
    more = {"pids": (7, 8, 9), "throttle": 0x80, "sm_mhz": 1110,
            "max_sm_mhz": 1980, "xids": 2, "xid": 79}  # fmt: skip
    windows.add(reading(0, 56, 412_000, **more), processes=True)
    (gpu,) = windows.subjects({0: [7]})
    assert (gpu.kind, gpu.name, gpu.detail, gpu.pids) == ("gpu", "0", "X", (7,))
    assert gpu.values == {
        "use": 560, "power_mw": 412_000, "sm_mhz": 1110, "max_sm_mhz": 1980, "throttle": 0x80,
        "processes": 3, "others": 2, "others_mem": 4, "xids": 2, "xid": 79,
    }  # fmt: skip
    (gpu,) = windows.subjects({})
    assert "others" not in gpu.values  # in a container pids may be other numbers
    assert windows.memory == {7: 3, 8: 4}


async def test_a_rank_with_a_recorder_sends_them_once_and_its_black_box_has_them(
    tmp_path: Path,
) -> None:
    builder = RingBuilder(tmp_path)
    builder.standard_tables()
    tracker = RankTracker([tmp_path])
    try:
        tracker.tick(time.monotonic_ns())
        (rank,) = tracker.ranks.values()
        rank.gauges = wire.Gauges((wire.Gpu(3),))
        sent = [tracker.tick(time.monotonic_ns()).ranks for _ in range(2)]
        assert [one.gauges for ranks in sent for one in ranks if one.gauges] == [rank.gauges]
        assert rank.reread(time.monotonic_ns()).gauges == rank.gauges
    finally:
        tracker.clear()
