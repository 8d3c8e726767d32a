"""Whether ranks of a host lack processors, memory or disks: by pressure, cgroups and kills."""

from __future__ import annotations

from collections.abc import Iterator

from frtop_tui.diagnosis.evidence.host_fact import FactKind, HostFact, risen, since
from frtop_tui.diagnosis.thresholds import (
    BUSY_CPU,
    HELD_BACK,
    PRESSURE_CPU,
    PRESSURE_IO,
    PRESSURE_MEMORY,
    STOLEN_CPU,
)
from frtop_tui.job.host_gauges import GaugedSubject, HostGauges


def pressure_facts(gauges: HostGauges) -> tuple[HostFact, ...]:
    """What the host and the cgroups of its ranks lack."""
    found: list[HostFact] = []
    for one in gauges.of_kind("host"):
        found += _pressure(gauges, one)
        found += _kills(gauges, one)
    for one in gauges.of_kind("cgroup"):
        found += _held_back(gauges, one)
        found += _kills(gauges, one)
    return tuple(found)


def _pressure(gauges: HostGauges, host: GaugedSubject) -> Iterator[HostFact]:
    """Waiting for a processor is out of the ordinary only where none is free."""
    rules: tuple[tuple[FactKind, str, int], ...] = (
        ("cpu pressure", "psi_cpu", PRESSURE_CPU),
        ("cpu stolen", "steal", STOLEN_CPU),
        ("memory pressure", "psi_memory_full", PRESSURE_MEMORY),
        ("io pressure", "psi_io_full", PRESSURE_IO),
    )
    for kind, gauge, limit in rules:
        value = host.values.get(gauge, 0)
        if value < limit or (kind == "cpu pressure" and host.values.get("cpu", 0) < BUSY_CPU):
            continue
        begin, at_least = since(gauges, host, gauge, limit.__le__)
        yield HostFact(kind, "", (), value, limit, begin, at_least)


def _held_back(gauges: HostGauges, cgroup: GaugedSubject) -> Iterator[HostFact]:
    value = cgroup.values.get("throttled", 0)
    if value >= HELD_BACK:
        begin, at_least = since(gauges, cgroup, "throttled", HELD_BACK.__le__)
        limit = cgroup.values.get("cpu_limit", 0)
        yield HostFact("held back", cgroup.name, cgroup.keys, value, limit, begin, at_least)


def _kills(gauges: HostGauges, subject: GaugedSubject) -> Iterator[HostFact]:
    """Kills since the history begins: older ones concern nobody who runs now."""
    by, last_ns = risen(gauges, subject, "oom_kills")
    if by:
        yield HostFact("out of memory", subject.name, subject.keys, by, 0, last_ns)
