"""Root's agent of all users tells what every user of the host can read, and nothing of ranks."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

import psutil
import pytest

from all_users.conftest import PATH
from frtop_probe.all_users.host_figures import NOBODY, OF_OWNERS, HostFigures
from frtop_probe.all_users.user_process import PYTHON
from frtop_tui.job.host_gauges import GaugeRecord
from waiting import DEADLINE_S


async def read(figures: HostFigures, times: int) -> int:
    """Runs until that many readings are there; returns the uid of the child that reads."""
    running = asyncio.create_task(figures.run())
    until = asyncio.get_running_loop().time() + DEADLINE_S
    while figures.table.history().points < times:
        assert asyncio.get_running_loop().time() < until
        await asyncio.sleep(0.05)
    ours = psutil.Process().children()
    (uid,) = {one.uids().real for one in ours if _reads(one)}
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return uid


def _reads(process: psutil.Process) -> bool:
    with suppress(psutil.ZombieProcess):
        return "frtop_probe.gauges.host" in process.cmdline()
    return False


def test_the_hosts_own_figures_are_read_without_roots_rights(
    python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PYTHON, python)
    monkeypatch.setenv("PYTHONPATH", PATH)
    figures = HostFigures(lambda: True)
    assert asyncio.run(read(figures, 2)) == NOBODY != os.getuid()
    full = figures.table.full()
    assert full is not None
    assert {one.kind for one in full.subjects} <= {"host", "nic", "infiniband"}
    assert not any(one.keys for one in full.subjects)
    record = GaugeRecord()
    record.apply(full, full=True)
    view = record.view()
    assert view is not None
    assert view.host["cores"] >= 1
    assert OF_OWNERS in view.notes


@pytest.mark.skipif(os.geteuid() != 0, reason="the child gives up root")
def test_while_nobody_looks_nothing_is_read() -> None:
    async def idle() -> None:
        figures = HostFigures(lambda: False)
        running = asyncio.create_task(figures.run())
        await asyncio.sleep(0)
        assert not figures._worker.runs
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert figures.table.full() is None

    asyncio.run(idle())
