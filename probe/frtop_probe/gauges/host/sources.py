"""All sources of a host together, as the child reads them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from frtop_probe.gauges.host.cgroups import CgroupSource
from frtop_probe.gauges.host.disks import DiskSource
from frtop_probe.gauges.host.figures import (
    NO_PRESSURE,
    CpuSource,
    MemorySource,
    TcpSource,
    TreeSource,
    read_pressure,
)
from frtop_probe.gauges.host.hanging import HangingCalls
from frtop_probe.gauges.host.network import NO_INFINIBAND, InfinibandSource, NicSource
from frtop_probe.gauges.readings import HostReading, SubjectReading

MAX_RANKS: Final = 64
"""Most ranks whose processes, folders and cgroups are read."""
WAIT_S: Final = 0.2
"""Longest wait for drivers' files; for slower ones the previous reading holds."""


class HostSources:
    """Reads a host. If a source fails, it notes that and reads the others."""

    def __init__(self, proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> None:
        self._proc = proc
        self._calls = HangingCalls()
        self._cpu, self._memory, self._tcp = CpuSource(proc), MemorySource(proc), TcpSource(proc)
        self._cgroups = CgroupSource(proc)
        self._trees = TreeSource(proc, os.sysconf("SC_CLK_TCK"))
        self._disks = DiskSource(proc, self._calls)
        self._drivers: tuple[tuple[str, Any], ...] = (
            ("network interfaces", NicSource(sys)),
            ("InfiniBand ports", InfinibandSource(sys)),
        )

    def read(self, pids: Sequence[int]) -> HostReading:
        """Makes one reading; `pids` are the ranks' pids."""
        now_ns = time.monotonic_ns()
        for name, source in self._drivers:
            self._calls.begin(name, partial(source.read, now_ns))
        subjects: list[SubjectReading] = []
        notes: list[str] = []

        def add(name: str, read: Callable[[], Iterable[SubjectReading]]) -> None:
            try:
                subjects.extend(read())
            except Exception as error:  # noqa: BLE001 - one source must not hide the others
                notes.append(f"reading {name} failed: {error!r}")

        ranks = pids[:MAX_RANKS]
        add("the host", lambda: self._host(now_ns, notes))
        add("cgroups", lambda: self._cgroups.read(ranks, now_ns))
        add("file systems", lambda: self._disks.read(ranks, now_ns))
        add("processes", lambda: self._trees.read(ranks, now_ns))
        until = time.monotonic() + WAIT_S
        for name, _ in self._drivers:
            self._add_driver(name, until, subjects, notes)
        return HostReading(now_ns, tuple(subjects), tuple(notes))

    def _host(self, now_ns: int, notes: list[str]) -> tuple[SubjectReading, ...]:
        values = {**self._cpu.read(now_ns), **self._memory.read(), **self._tcp.read(now_ns)}
        waits = read_pressure(self._proc / "pressure")
        if not waits:
            notes.append(NO_PRESSURE)
        return (SubjectReading("host", "", {**values, **waits}),)

    def _add_driver(
        self, name: str, until: float, subjects: list[SubjectReading], notes: list[str]
    ) -> None:
        found, hangs_s = self._calls.newest(name, until)
        if hangs_s:
            notes.append(f"{name} do not answer: a read of them hangs in the driver")
        elif isinstance(found, Exception):
            notes.append(f"reading {name} failed: {found!r}")
        elif found is not None:
            subjects.extend(found)
            if not found and name == "InfiniBand ports":
                notes.append(NO_INFINIBAND)
