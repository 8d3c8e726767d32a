"""What the host does, for the agent of all users: only what every user of the host can read.

A host's processors, memory, pressure and links belong to nobody: whoever may see any rank there
gets their figures. Figures of cgroups, file systems, GPUs and processes belong to the owners of
ranks, and are not sent. A child reads the host once for all, as the user nobody, and gets no pid.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from typing import Final

from frtop_probe.agent.gauge_table import GaugeTable
from frtop_probe.agent.gauge_watch import PERIOD_S
from frtop_probe.all_users import become_user
from frtop_probe.all_users.user_process import PYTHON
from frtop_probe.gauges.host.worker import HostWorker

NOBODY: Final = 65534
OF_OWNERS: Final = (
    "figures of cgroups, file systems, GPUs and ranks: root's agent of all users tells only the"
    " host's own"
)
_STEP_S: Final = 0.5


class HostFigures:
    """Reads the host while somebody looks."""

    def __init__(self, looks: Callable[[], bool], worker: HostWorker | None = None) -> None:
        """Starts nothing yet. Args: looks: whether somebody does."""
        self._looks = looks
        self._worker = worker if worker is not None else HostWorker(command=_command())
        self.table = GaugeTable()

    async def run(self) -> None:
        """Works until it is cancelled."""
        last = 0.0
        try:
            while True:
                now = time.monotonic()
                if self._looks() and now - last >= PERIOD_S:
                    last = now
                    reading = await self._worker.read(())
                    notes = (*reading.notes, OF_OWNERS)
                    self.table.add(reading.at_ns, reading.subjects, notes, lambda _: None)
                elif not self._looks() and self._worker.runs:
                    await self._worker.stop()
                await asyncio.sleep(_STEP_S)
        finally:
            await self._worker.close()


def _command() -> list[str]:
    python = os.environ.get(PYTHON) or sys.executable
    program = [python, "-m", "frtop_probe.gauges.host", str(os.getpid())]
    return [sys.executable, "-I", "-S", become_user.__file__, str(NOBODY), "0", *program]
