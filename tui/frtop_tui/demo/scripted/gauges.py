"""The gauges of a scripted host, numbered and sent through the same table as in real agents."""

from __future__ import annotations

from collections.abc import Iterator
from math import sin
from typing import Final

from frtop_probe import wire
from frtop_probe.agent.gauges.gauge_table import GaugeTable
from frtop_probe.gauges.readings import SubjectReading
from frtop_tui.demo.scripted.ranks import GPU, HostRanks
from frtop_tui.demo.scripted.script import MS, SECOND

PERIOD_NS: Final = 10 * SECOND
REMEMBERED: Final = 60
"""Readings: ten minutes of them."""
_GIB: Final = 1 << 30
_LINK: Final = 50 * 10**9
_THROUGH_LINK: Final = 31 * 10**8


class ScriptedFigures:
    """What a host's agent reports about its gauges; each reading depends only on the time."""

    def __init__(self, host: HostRanks) -> None:
        self._host = host
        self._newest = GaugeTable()
        self._read_at = -1

    def changes(self, now_ns: int) -> wire.HostSample | None:
        """What is new since the last call."""
        self._read(now_ns)
        return self._newest.changes()

    def full(self, now_ns: int) -> wire.HostSample | None:
        """All of the newest figures."""
        self._read(now_ns)
        return self._newest.full()

    def history(self, request: wire.GaugeHistoryRequest, now_ns: int) -> wire.GaugeHistory:
        """Ten minutes, computed on request in some 30 ms."""
        last = now_ns // PERIOD_NS
        table = GaugeTable()
        for number in range(last - REMEMBERED + 1, last + 1):
            self._add(table, number)
        return table.history(request.gauges, request.points)

    def _read(self, now_ns: int) -> None:
        number = now_ns // PERIOD_NS
        if number != self._read_at:
            self._read_at = number
            self._add(self._newest, number)

    def _add(self, table: GaugeTable, number: int) -> None:
        at_ns = number * PERIOD_NS
        # The pid of a scripted rank stands for its key: pids are the same on all hosts.
        table.add(at_ns + self._host.skew_ns, self._subjects(at_ns), (), lambda key: key)

    def _subjects(self, at_ns: int) -> Iterator[SubjectReading]:
        host = self._host
        swing = sin(at_ns / (70 * SECOND) + host.index)
        share = 0.35 + 0.05 * swing
        yield SubjectReading("host", "", {
            "cores": 128, "cpu": int(1000 * share), "load": int(12_800 * share),
            "mem_total": 2048 * _GIB, "mem_available": int((1100 - 20 * swing) * _GIB),
            "swap_used": 0, "oom_kills": 0, "psi_cpu": 4, "psi_memory": 0, "psi_io": 2,
        })  # fmt: skip
        for rank in host.ranks:
            gpu = host.gpu(rank, at_ns)
            (sample,) = gpu.samples
            yield SubjectReading("gpu", str(gpu.index), {
                "use": 10 * (sample.utilization or 0), "power_mw": sample.power_mw or 0,
                "power_limit_mw": gpu.power_limit_mw or 0, "mem_used": sample.memory_used or 0,
                "mem_total": gpu.memory_total or 0, "sm_mhz": sample.sm_mhz or 0,
                "max_sm_mhz": 1_980, "throttle": sample.throttle or 0,
                "temperature": 61 + rank % 5, "xids": 0,
            }, detail=GPU.name, pids=(rank + 1,))  # fmt: skip
        moved = int(_THROUGH_LINK * (1 + 0.1 * swing))
        yield SubjectReading("infiniband", "mlx5_0:1", {
            "state": 4, "speed": _LINK, "received": moved, "sent": moved - 10 * MS, "errors": 0,
            "link_downed": 0,
        }, detail="InfiniBand ACTIVE")  # fmt: skip
        yield SubjectReading("disk", "/scratch", {
            "size": 1200 * _GIB, "free": 700 * _GIB, "read": 0, "written": 3_000_000, "busy": 20,
        }, detail="ext4 /dev/nvme0n1")  # fmt: skip
        for rank in host.ranks:
            yield SubjectReading(
                "rank",
                str(rank - host.ranks[0]),
                {"cpu": 910 if host.gpu(rank, at_ns).index else 900, "processes": 5},
                pids=(rank + 1,),
            )
