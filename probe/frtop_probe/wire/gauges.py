"""Figures of the GPUs that ranks use, with recent samples; and a host's figures over time."""

from __future__ import annotations

from frtop_probe.wire.histories import HistoryColumn
from frtop_probe.wire.values import Int, Value


class GpuSample(Value, frozen=True):
    """A GPU at one time. None: the driver does not say, for instance with MIG.

    `utilization` is the percentage of time in which any kernel ran, `power_mw` is in milliwatts,
    `memory_used` in bytes; `throttle` has NVML's bits that say why clocks are not higher.
    """

    at_ns: Int
    utilization: Int | None = None
    power_mw: Int | None = None
    memory_used: Int | None = None
    sm_mhz: Int | None = None
    throttle: Int | None = None
    temperature: Int | None = None  # degrees Celsius


class Gpu(Value, frozen=True):
    """A GPU that a rank computes on; its figures are those of all processes on it.

    `index` is nvidia-smi's; CUDA's may differ. `idle_mw` is the lowest power that the agent has
    seen while no kernel ran; None if it never saw that.
    """

    index: Int
    uuid: str = ""
    name: str = ""
    power_limit_mw: Int | None = None
    memory_total: Int | None = None
    idle_mw: Int | None = None
    processes: Int = 0  # that compute on it, including the rank; 0: unknown
    mig: bool = False  # it is divided; its figures cover all parts
    error: str = ""  # why there are no figures, such as a lost GPU
    samples: tuple[GpuSample, ...] = ()  # the last few, oldest first
    max_sm_mhz: Int | None = None  # its highest possible clock
    xid: Int = 0  # the last XID error since the agent began to listen; 0: none
    xid_at_ns: Int = 0


class Gauges(Value, frozen=True):
    """The devices that a rank uses. `note` says what is unknown about them, and why."""

    gpus: tuple[Gpu, ...] = ()
    note: str = ""


class GaugeSubject(Value, frozen=True):
    """Something that has gauges; its agent numbers it.

    `kind` is one of "host", "cgroup", "disk", "nic", "infiniband", "gpu", "rank". `keys` are the
    keys of the ranks that use it, as far as known. `problem` is why there are no figures now.
    """

    id: Int
    kind: str
    name: str
    detail: str = ""  # which device it is, if the name does not say
    keys: tuple[Int, ...] = ()
    problem: str = ""


class GaugeSeries(Value, frozen=True):
    """One gauge of one subject, numbered by its agent; units are in docs/features/gauges.md."""

    id: Int
    subject: Int
    gauge: str


class HostSample(Value, frozen=True):
    """The newest gauges of a host: all of them in its full state, else those that changed.

    `values` belong to the series `ids`; None if a value is unknown now. A series is named before
    its first value or with it. `notes` say what this host does not offer; ("",): it offers
    everything.
    """

    at_ns: Int
    subjects: tuple[GaugeSubject, ...] = ()
    series: tuple[GaugeSeries, ...] = ()
    ids: tuple[Int, ...] = ()
    values: tuple[Int | None, ...] = ()
    gone: tuple[Int, ...] = ()  # subjects
    notes: tuple[str, ...] = ()


class GaugeColumn(Value, frozen=True):
    """The values of one series at the times of its history; -1: unknown."""

    series: GaugeSeries
    values: HistoryColumn


class GaugeHistory(Value, frozen=True):
    """Gauges of up to ten minutes. `times` and each column have `points` values."""

    points: Int = 0
    times: HistoryColumn = HistoryColumn(0)
    subjects: tuple[GaugeSubject, ...] = ()
    columns: tuple[GaugeColumn, ...] = ()
    notes: tuple[str, ...] = ()
