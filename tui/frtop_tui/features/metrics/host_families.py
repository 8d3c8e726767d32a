"""The gauges of hosts as families of `prometheus_client`, of a bounded number of hosts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, get_args

from prometheus_client.core import GaugeMetricFamily

from frtop_tui.diagnosis.evidence.host_facts import FactKind, FactTable
from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.host_gauges import HostGauges
from frtop_tui.job.model import HostView
from frtop_tui.text.job_counts import label

FEW_HOSTS: Final = 64
"""Up to as many hosts have series of their own; the facts are counted over all."""
MOST_LINKS: Final = 8
MOST_GPUS: Final = 16
_PRESSURES: Final = (("cpu", "psi_cpu"), ("memory", "psi_memory"), ("io", "psi_io"))
_GPU: Final = (
    ("busy_ratio", "Time in which any kernel ran.", "use", 1000),
    ("power_watts", "Power that it takes.", "power_mw", 1000),
    ("clock_hertz", "Clock of its multiprocessors.", "sm_mhz", 1e-6),
    ("memory_used_bytes", "Memory of it that is in use.", "mem_used", 1),
    ("temperature_celsius", "How hot it is.", "temperature", 1),
)
"""Suffix, help, gauge, and by what to divide it."""


class HostMetrics:
    """Makes them of frames; remembers the facts of hosts whose gauges have not changed."""

    def __init__(self) -> None:
        self._facts = FactTable()

    def families(self, frame: Frame) -> Iterator[Any]:
        """All of one frame. A host that is unreachable has no gauges of now."""
        hosts = [one for one in frame.hosts if one.gauges is not None and one.state == "reporting"]
        yield self._facts_of(hosts)
        if len(hosts) <= FEW_HOSTS:
            named = [(label(host.name), host.gauges) for host in hosts if host.gauges is not None]
            yield from _of_hosts(named)
            yield from _of_gpus(named)

    def _facts_of(self, hosts: list[HostView]) -> Any:
        found: Counter[str] = Counter()
        for host in hosts:
            found.update({fact.kind for fact in self._facts.of(host)})
        family = GaugeMetricFamily("frtop_host_facts",
                                   "Hosts about which something is out of the ordinary.",
                                   labels=("kind",))  # fmt: skip
        for kind in get_args(FactKind):
            family.add_metric((kind,), found[kind])
        return family


def _of_hosts(hosts: list[tuple[str, HostGauges]]) -> Iterator[Any]:
    cpu = GaugeMetricFamily("frtop_host_cpu_ratio", "Processors in use.", labels=("host",))
    left = GaugeMetricFamily("frtop_host_memory_available_bytes", "Memory that is left.",
                             labels=("host",))  # fmt: skip
    waits = GaugeMetricFamily("frtop_host_pressure_ratio",
                              "Time in which some task waited, of the last ten seconds.",
                              labels=("host", "resource"))  # fmt: skip
    full = GaugeMetricFamily("frtop_host_disk_used_ratio",
                             "Of the fullest file system that ranks use.",
                             labels=("host",))  # fmt: skip
    rates = GaugeMetricFamily("frtop_host_link_bytes_per_second", "What a link carries.",
                              labels=("host", "link", "way"))  # fmt: skip
    for name, gauges in hosts:
        values = gauges.host
        if "cpu" in values:
            cpu.add_metric((name,), values["cpu"] / 1000)
        if "mem_available" in values:
            left.add_metric((name,), values["mem_available"])
        for resource, gauge in _PRESSURES:
            if gauge in values:
                waits.add_metric((name, resource), values[gauge] / 1000)
        used = [
            1 - disk.values.get("free", 0) / size
            for disk in gauges.of_kind("disk")
            if (size := disk.values.get("size"))
        ]
        if used:
            full.add_metric((name,), max(used))
        for link in (*gauges.of_kind("infiniband"), *gauges.of_kind("nic"))[:MOST_LINKS]:
            for way in ("received", "sent"):
                if way in link.values:
                    rates.add_metric((name, label(link.name), way), link.values[way])
    yield from (cpu, left, waits, full, rates)


def _of_gpus(hosts: list[tuple[str, HostGauges]]) -> Iterator[Any]:
    for suffix, text, gauge, divisor in _GPU:
        family = GaugeMetricFamily(f"frtop_gpu_{suffix}", text, labels=("gpu", "host"))
        for name, gauges in hosts:
            for gpu in gauges.of_kind("gpu")[:MOST_GPUS]:
                if gauge in gpu.values:
                    family.add_metric((label(gpu.name), name), gpu.values[gauge] / divisor)
        yield family
