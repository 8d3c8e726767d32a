"""The child that reads NVML: the real binding, on a stand-in of NVIDIA's library."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress

import psutil
import pytest

from frtop_probe.agent.gauges import gpu_watch
from frtop_probe.agent.gauges.gpu_watch import GpuWorker
from frtop_probe.proc.pausing_child import MAX_LEFT
from gauges.standin import H200, HANG, LOST, NOT_SUPPORTED, Gpus, needs_standin
from waiting import wait_for, wait_for_async

pytestmark = needs_standin
PAUSE_S = 0.05


@pytest.fixture
async def gauges() -> AsyncIterator[GpuWorker]:
    made = GpuWorker(deadline_s=1.5, pause_s=PAUSE_S)
    yield made
    await made.close()


MODULE = "frtop_probe.gauges"


def children(pid: int | None = None) -> list[psutil.Process]:
    found = []
    for child in psutil.Process(pid).children():
        with suppress(psutil.NoSuchProcess):
            # Other tests of this process may have left a child that serves them.
            if child.status() != psutil.STATUS_ZOMBIE and MODULE in child.cmdline():
                found.append(child)
    return found


async def test_all_figures_of_two_gpus(gpus: Gpus, gauges: GpuWorker) -> None:
    gpus.add(pids="77 78")
    gpus.add(utilization=0, power=71_500, throttle=4, pids="")
    reading = await gauges.read(processes=True)
    assert not reading.problem
    first, second = reading.gpus
    assert (first.index, first.uuid, first.name) == (0, "GPU-0", "NVIDIA H200")
    assert first.values == {
        "use": 1000, "power_mw": 96_000, "power_limit_mw": 700_000, "mem_used": 31 << 30,
        "mem_total": 139 << 30, "sm_mhz": 1980, "max_sm_mhz": 1980, "throttle": 0,
        "temperature": 61, "xids": 0,
    }  # fmt: skip
    assert (first.pids, first.pid_bytes) == ((77, 78), (1 << 30, 1 << 30))
    assert (first.mig, first.error) == (False, "")
    assert [second.values[name] for name in ("use", "power_mw", "throttle")] == [0, 71_500, 4]
    assert second.pids == ()
    assert abs(reading.at_ns - time.monotonic_ns()) < 60e9


async def test_xid_errors_are_reported_from_the_first_reading_on(
    gpus: Gpus, gauges: GpuWorker
) -> None:
    gpus.add()
    gpus.add()
    gpus.add(listen=0)  # as with MIG

    async def errors() -> list[tuple[int | None, int | None]]:
        seen = [gpu.values for gpu in (await gauges.read()).gpus]
        return [(values.get("xid"), values.get("xids")) for values in seen]

    assert await errors() == [(None, 0), (None, 0), (None, None)]
    gpus.set(None, xids="1 79 0 31 1 13")
    for _ in range(2):  # each is counted once
        assert await errors() == [(31, 1), (13, 2), (None, None)]
    assert abs((await gauges.read()).gpus[1].xid_at_ns - time.monotonic_ns()) < 60e9


async def test_processes_are_asked_for_only_when_wanted(gpus: Gpus, gauges: GpuWorker) -> None:
    gpus.add(pids=HANG)
    assert (await gauges.read()).gpus[0].pids is None


async def test_what_is_not_supported_is_missing_alone(gpus: Gpus, gauges: GpuWorker) -> None:
    fields = {
        "utilization": "use", "power": "power_mw", "limit": "power_limit_mw",
        "total": "mem_total", "sm": "sm_mhz", "throttle": "throttle", "pids": "pids",
    }  # fmt: skip
    gpus.add(pids="77", mig=NOT_SUPPORTED)
    full = (await gauges.read(processes=True)).gpus[0]
    assert not full.mig
    for name, field in fields.items():
        gpus.set(0, **{name: NOT_SUPPORTED})
        (gpu,) = (await gauges.read(processes=True)).gpus
        seen = {**gpu.values, **({} if gpu.pids is None else {"pids": 1})}
        lacking = fields.values() - seen.keys()
        assert lacking == {field}
        gpus.set(0, **{"pids": "77", **H200, "mig": 1, name: H200.get(name, "77")})
    assert (await gauges.read()).gpus[0].mig


async def test_a_lost_gpu_says_so_and_the_others_are_read(gpus: Gpus, gauges: GpuWorker) -> None:
    gpus.add(power=LOST)
    gpus.add()
    lost, other = (await gauges.read()).gpus
    assert "lost" in lost.error.lower()
    assert "power_mw" not in lost.values
    assert (other.error, other.values["power_mw"]) == ("", 96_000)


async def test_without_a_driver_that_is_said_and_no_child_stays(
    gpus: Gpus, gauges: GpuWorker
) -> None:
    gpus.set(None, init="!9")
    reading = await gauges.read()
    assert reading.problem == "NVML: Driver Not Loaded"
    await wait_for_async(lambda: not children(), "no child")
    gpus.set(None, init=0)
    gpus.add()
    await asyncio.sleep(PAUSE_S)
    assert len((await gauges.read()).gpus) == 1


async def test_a_call_that_hangs_is_left_and_seldom_tried_again(
    gpus: Gpus, gauges: GpuWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus.add()
    assert (await gauges.read()).gpus
    gpus.set(0, power=HANG)
    assert (await gauges.read()).problem == gpu_watch.DID_NOT_RETURN
    monkeypatch.setattr(gauges, "_not_before", time.monotonic() + 60)
    assert (await gauges.read()).problem == gpu_watch.DID_NOT_RETURN  # at once, without a child
    await wait_for_async(lambda: not children(), "killed")
    gpus.set(0, power=96_000)
    monkeypatch.setattr(gauges, "_not_before", 0.0)
    assert (await gauges.read()).gpus[0].values["power_mw"] == 96_000


async def test_children_that_cannot_be_killed_are_bounded(
    gpus: Gpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus.add(power=HANG)
    gauges = GpuWorker(deadline_s=0.3, pause_s=PAUSE_S)
    monkeypatch.setattr(gauges._lines, "_reap", lambda: None)  # as if a kill did not end them
    for _ in range(MAX_LEFT + 1):
        monkeypatch.setattr(gauges, "_not_before", 0.0)
        assert (await gauges.read()).problem == gpu_watch.DID_NOT_RETURN
    left = gauges._lines._left
    assert len(left) == MAX_LEFT
    monkeypatch.undo()
    await wait_for_async(lambda: all(one.poll() is not None for one in left), "their end")
    await gauges.close()


def test_the_child_ends_with_its_parent_even_inside_of_a_call(gpus: Gpus) -> None:
    gpus.add(power=HANG)
    program = (
        "import asyncio\n"
        "from frtop_probe.agent.gauges.gpu_watch import GpuWorker\n"
        "async def main():\n"
        "    await GpuWorker(deadline_s=60).read()\n"
        "asyncio.run(main())\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program])
    try:
        (child,) = wait_for(lambda: children(parent.pid), "a child")
        wait_for(lambda: child.status() == psutil.STATUS_DISK_SLEEP, "it waits in the kernel")
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
        wait_for(lambda: not child.is_running() or child.status() == "zombie", "the child's end")
    finally:
        parent.kill()
        parent.wait()


async def test_without_the_binding_that_is_said(
    gpus: Gpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    from frtop_probe.gauges import nvml  # noqa: PLC0415

    monkeypatch.setattr(nvml, "MODULE", "no_such_binding")
    assert nvml.NvmlReader().read(processes=False).problem == nvml.NO_BINDING
