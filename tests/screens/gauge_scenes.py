"""Hosts with gauges, as an agent's own table numbers and sends them, and an operator keeps them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from frtop_probe import wire
from frtop_probe.agent.gauges.gauge_table import GaugeTable
from frtop_probe.gauges.readings import SubjectReading
from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.host_gauges import GaugeRecord, HostGauges
from frtop_tui.job.model import HostView

from .scenes import HOST_NOW, NOW, S, hung

GIB = 1 << 30
HOST = {
    "cores": 64, "cpu": 610, "load": 3120, "mem_total": 1024 * GIB, "mem_available": 400 * GIB,
    "swap_used": 0, "oom_kills": 0, "psi_cpu": 30, "psi_memory": 0, "psi_memory_full": 0,
    "psi_io": 10, "psi_io_full": 0,
}  # fmt: skip
GPU = {
    "use": 980, "power_mw": 690_000, "power_limit_mw": 700_000, "mem_used": 71 * GIB,
    "mem_total": 139 * GIB, "sm_mhz": 1980, "max_sm_mhz": 1980, "throttle": 0, "temperature": 61,
    "xids": 0,
}  # fmt: skip
PORT = {
    "state": 4, "speed": 50 * 10**9, "received": 31 * 10**8, "sent": 30 * 10**8, "errors": 0,
    "link_downed": 0,
}  # fmt: skip
DISK = {"size": 1200 * GIB, "free": 700 * GIB, "read": 0, "written": 3 * 10**6, "busy": 20}
Readings = Callable[[int], Iterable[SubjectReading]]
"""By how many seconds ago, the subjects of a reading."""


def subject(kind: str, name: str, values: dict[str, int], **changes: Any) -> SubjectReading:
    fields = {one: changes.pop(one) for one in ("detail", "problem", "pids") if one in changes}
    return SubjectReading(kind, name, {**values, **changes}, **fields)


def ordinary(ago_s: int = 0) -> list[SubjectReading]:
    """A host with eight ranks, GPUs and a port; its processors are busier now than before."""
    pids = tuple(range(1, 9))
    return [
        subject("host", "", HOST, cpu=610 - min(600, ago_s)),
        *(
            subject("gpu", str(n), GPU, detail="NVIDIA H200", pids=(n + 1,), others=0)
            for n in range(8)
        ),
        subject("infiniband", "mlx5_0:1", PORT, detail="InfiniBand ACTIVE"),
        subject("nic", "eth0", {"received": 9000, "sent": 5000, "errors": 0, "drops": 3}),
        subject("disk", "/tmp", DISK, detail="ext4 /dev/nvme0n1", pids=pids),
        subject("cgroup", "/job7", {"cpu": 31_000, "cpu_limit": 64_000, "throttled": 0,
                                    "mem_used": 200 * GIB, "mem_limit": 900 * GIB,
                                    "oom_kills": 0}, detail="cgroup v2", pids=pids),
        *(subject("rank", str(n), {"cpu": 3900, "processes": 5}, pids=(n,)) for n in pids),
    ]  # fmt: skip


def braked(ago_s: int = 0) -> list[SubjectReading]:
    """The same; for five minutes GPU 4 is slowed by a power brake."""
    found = ordinary(ago_s)
    place = next(i for i, one in enumerate(found) if (one.kind, one.name) == ("gpu", "4"))
    if ago_s <= 300:
        changes = {"sm_mhz": 1110, "throttle": 0x80, "use": 560, "power_mw": 412_000}
        found[place] = subject("gpu", "4", {**GPU, **changes}, detail="NVIDIA H200", pids=(5,),
                               others=0)  # fmt: skip
    return found


def history_of(readings: Readings, last_s: int = 590, step_s: int = 10) -> GaugeTable:
    """What an agent knows after these readings, the newest of the scenes' now."""
    table = GaugeTable()
    for ago_s in range(last_s, -1, -step_s):
        table.add(HOST_NOW - ago_s * S, readings(ago_s), (), lambda pid: pid)
    return table


def gauges(readings: Readings = ordinary, *, history: bool = True) -> HostGauges:
    """The same as an operator has it."""
    table, record = history_of(readings), GaugeRecord()
    full = table.full()
    assert full is not None
    record.apply(wire.HostSample(*_fields(full)), full=True)
    if history:
        record.apply_history(table.history((), 60))
    found = record.view()
    assert found is not None
    return found


def _fields(sample: wire.HostSample) -> list[Any]:
    return [getattr(sample, name) for name in sample.__struct_fields__]


def measured(*troubled: int, readings: Readings = braked, hosts: int = 8) -> Frame:
    """A hung job whose hosts send gauges; those with these numbers have other readings."""
    frame = hung()
    well, ill = gauges(), gauges(readings)
    views = tuple(
        HostView(
            f"node{n}",
            "reporting",
            reported_ns=NOW,
            clock_error_ns=0,
            gauges=ill if n in troubled else well,
            monotonic_ns=NOW - HOST_NOW,
        )
        for n in range(hosts)
    )
    return replace(frame, hosts=views)
