"""Figures of GPUs that ranks use, with their last samples; and all figures of a host over time."""

from __future__ import annotations

from msgspec import Struct

from frtop_probe.wire.histories import HistoryColumn
from frtop_probe.wire.values import Int


class GpuSample(Struct, frozen=True, array_like=True):
    """A GPU at one time. None: its driver does not say, as with MIG.

    `utilization` is the percentage of time in which any kernel ran, `power_mw` in milliwatts,
    `memory_used` in bytes, `throttle` has NVML's bits of why clocks are not higher.
    """

    at_ns: Int
    utilization: Int | None = None
    power_mw: Int | None = None
    memory_used: Int | None = None
    sm_mhz: Int | None = None
    throttle: Int | None = None
    temperature: Int | None = None  # degrees Celsius


class Gpu(Struct, frozen=True, array_like=True):
    """A GPU that a rank computes on; its figures are those of all processes on it.

    `index` is that of nvidia-smi, which CUDA's may differ from. `idle_mw` is the lowest power that
    the agent has seen of it while no kernel ran, None if it never saw that.
    """

    index: Int
    uuid: str = ""
    name: str = ""
    power_limit_mw: Int | None = None
    memory_total: Int | None = None
    idle_mw: Int | None = None
    processes: Int = 0  # that compute on it, the rank among them; 0: not known
    mig: bool = False  # it is divided, and its figures are those of all parts
    error: str = ""  # why there are no figures, such as that it is lost
    samples: tuple[GpuSample, ...] = ()  # the last few, oldest first
    max_sm_mhz: Int | None = None  # the highest clock it can have
    xid: Int = 0  # of the last XID error since the agent listens, 0 for none
    xid_at_ns: Int = 0


class Gauges(Struct, frozen=True, array_like=True):
    """The devices that a rank uses. `note` says what is not known of them, and why."""

    gpus: tuple[Gpu, ...] = ()
    note: str = ""


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
