"""Figures of a host as its kernel and drivers show them: the newest, and the last ten minutes."""

from __future__ import annotations

from msgspec import Struct

from frtop_probe.wire.histories import HistoryColumn
from frtop_probe.wire.values import Int


class GaugeSubject(Struct, frozen=True, array_like=True):
    """What gauges are of, numbered by its agent.

    `kind` is one of "host", "cgroup", "disk", "nic", "infiniband", "gpu", "rank". `keys` are those
    of the ranks it serves, as far as that is known. `problem` is why there are no figures now.
    """

    id: Int
    kind: str
    name: str
    detail: str = ""  # which device it is, where the name does not say
    keys: tuple[Int, ...] = ()
    problem: str = ""


class GaugeSeries(Struct, frozen=True, array_like=True):
    """One gauge of one subject, numbered by its agent; units are in docs/features/gauges.md."""

    id: Int
    subject: Int
    gauge: str


class HostSample(Struct, frozen=True, array_like=True):
    """The newest gauges of a host: in its full state all of them, else what has changed.

    `values` are those of the series `ids`, None where one is not known now. A series is named
    before its first value comes, or with it. `notes` are what this host does not offer; ("",): it
    offers all.
    """

    at_ns: Int
    subjects: tuple[GaugeSubject, ...] = ()
    series: tuple[GaugeSeries, ...] = ()
    ids: tuple[Int, ...] = ()
    values: tuple[Int | None, ...] = ()
    gone: tuple[Int, ...] = ()  # subjects
    notes: tuple[str, ...] = ()


class GaugeColumn(Struct, frozen=True, array_like=True):
    """The values of one series at the times of its history; -1: not known."""

    series: GaugeSeries
    values: HistoryColumn


class GaugeHistory(Struct, frozen=True, array_like=True):
    """Gauges of up to ten minutes. `times` has `points` values, and so has each column."""

    points: Int = 0
    times: HistoryColumn = HistoryColumn(0)
    subjects: tuple[GaugeSubject, ...] = ()
    columns: tuple[GaugeColumn, ...] = ()
    notes: tuple[str, ...] = ()
