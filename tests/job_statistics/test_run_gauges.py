"""Gauges over whole runs: means of minutes, and what changed by more than the noise."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from frtop_probe.agent.gauges.gauge_table import GaugeTable
from frtop_probe.gauges.readings import SubjectReading
from frtop_tui.job.host_gauges import GaugeRecord, HostGauges
from frtop_tui.job.model import HostView
from frtop_tui.statistics.run_gauges import CPU, GPU, gauge_changes, longest, mean_of

S = 1_000_000_000
MIB = 1 << 20
Readings = Callable[[int], list[SubjectReading]]


def minutes(readings: Readings, count: int = 20) -> HostGauges:
    """A run of so many minutes, read once a minute."""
    table = GaugeTable()
    for minute in range(count + 1):
        table.add((60 * minute + 1) * S, readings(minute), (), lambda pid: pid)
    history = table.minutes(0)
    assert history is not None
    record = GaugeRecord()
    record.apply_history(history)
    view = record.view()
    assert view is not None
    return view


def host(cpu: int, *gpus: int, sent: int = 0) -> Readings:
    return lambda minute: [
        SubjectReading("host", "", {"cpu": cpu + minute % 3}),
        *(SubjectReading("gpu", str(n), {"use": use}) for n, use in enumerate(gpus)),
        SubjectReading("disk", "/", {"read": 3 * MIB}),
        SubjectReading("disk", "/data", {"read": 5 * MIB}),
        SubjectReading("nic", "eth0", {"sent": sent}),
    ]


def test_a_mean_is_of_all_hosts_minutes_and_gpus() -> None:
    two = [minutes(host(400, 900, 100)), minutes(host(600, 500, 300))]
    assert mean_of(two, CPU) == pytest.approx(501, abs=1)
    assert mean_of(two, GPU) == 450
    assert mean_of([minutes(host(400))], GPU) is None
    assert mean_of([], CPU) is None


def test_what_changed_by_more_than_the_noise_and_five_percent_is_told() -> None:
    before, after = minutes(host(400, 900)), minutes(host(410, 400))
    found = {one.of.name: one for one in gauge_changes([before], [after])}
    assert not found["cpu"].is_telling  # 2 %
    assert found["gpu"].is_telling
    assert found["read"].before == found["read"].after
    assert found["read"].before == pytest.approx(8 * MIB, rel=0.005)  # both disks
    assert "power_mw" not in found


def test_infiniband_counts_and_not_the_interface_on_top_of_it() -> None:
    def both(minute: int) -> list[SubjectReading]:
        port = SubjectReading("infiniband", "mlx5_0:1", {"sent": 1000})
        return [*host(1, sent=900)(minute), port]

    (sent,) = [one for one in gauge_changes([], [minutes(both)]) if one.of.name == "sent"]
    assert (sent.before, sent.after, sent.is_telling) == (None, 1000, False)


def test_few_minutes_are_not_compared_and_readings_are_where_there_are_few() -> None:
    few, many = minutes(host(400), 5), minutes(host(800))
    assert not any(one.is_telling for one in gauge_changes([few], [many]))
    view = HostView("node0", "reporting", gauges=many, minutes=few)
    assert longest(view) is many
    assert longest(replace(view, gauges=few, minutes=many)) is many
