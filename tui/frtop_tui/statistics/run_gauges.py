"""Gauges over a whole run: means of its minutes on all hosts, and what changed between two runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from statistics import fmean, variance
from typing import Final, NamedTuple

from frtop_tui.job.host_gauges import UNKNOWN, HostGauges
from frtop_tui.job.model import HostView
from frtop_tui.job.units import byte_rate, byte_size, percent
from frtop_tui.statistics.comparison import FEWEST, SURE

MOST_VALUES: Final = 50_000
"""Of all hosts together, for one gauge: more would show the same."""
LEAST_CHANGE: Final = 0.05
"""Share of the larger one. Minutes resemble their neighbours, so noise is more than it looks."""


class RunGauge(NamedTuple):
    """A figure of a host at one time: the mean of its subjects of a kind, or their sum.

    Of several `kinds` the first one that a host has counts.
    """

    name: str
    words: str
    kinds: tuple[str, ...]
    gauge: str
    shown: Callable[[float], str]
    is_sum: bool = False


def _permille(value: float) -> str:
    return percent(value / 1000)


_LINKS: Final = ("infiniband", "nic")
CPU: Final = RunGauge("cpu", "processors in use", ("host",), "cpu", _permille)
GPU: Final = RunGauge("gpu", "GPUs busy", ("gpu",), "use", _permille)
RUN_GAUGES: Final = (
    CPU,
    RunGauge("mem_available", "memory left on a host", ("host",), "mem_available", byte_size),
    RunGauge("mem", "memory of a rank", ("rank",), "mem", byte_size),
    RunGauge("read", "read from disks of a host", ("disk",), "read", byte_rate, is_sum=True),
    RunGauge("written", "written to disks of a host", ("disk",), "written", byte_rate, is_sum=True),
    RunGauge("received", "received by a host", _LINKS, "received", byte_rate, is_sum=True),
    RunGauge("sent", "sent by a host", _LINKS, "sent", byte_rate, is_sum=True),
    GPU,
    RunGauge("power_mw", "power of a GPU", ("gpu",), "power_mw", lambda mw: f"{mw / 1000:.0f} W"),
    RunGauge("sm_mhz", "clock of a GPU", ("gpu",), "sm_mhz", lambda mhz: f"{mhz:,.0f} MHz"),
)


class GaugeChange(NamedTuple):
    """The means of two runs, None if not known, in the gauge's unit on the wire.

    `noise` is three standard errors of their difference; None if one has too few minutes.
    """

    of: RunGauge
    before: float | None
    after: float | None
    noise: float | None = None

    @property
    def is_telling(self) -> bool:
        """Whether they differ by more than the noise, and enough to matter."""
        if self.noise is None or self.before is None or self.after is None:
            return False
        least = LEAST_CHANGE * max(self.before, self.after)
        return abs(self.after - self.before) > max(self.noise, least)


def longest(host: HostView) -> HostGauges | None:
    """The history of a host that covers most of its run, if it has enough points to compare."""
    minutes = host.minutes
    return minutes if minutes is not None and minutes.points >= FEWEST else host.gauges


def mean_of(hosts: Sequence[HostGauges], which: RunGauge) -> float | None:
    """The mean over all hosts and their histories; None if it was never read."""
    values = _values(hosts, which)
    return fmean(values) if values else None


def gauge_changes(
    before: Sequence[HostGauges], after: Sequence[HostGauges]
) -> tuple[GaugeChange, ...]:
    """What either run has."""
    found = []
    for which in RUN_GAUGES:
        first, second = _values(before, which), _values(after, which)
        if first or second:
            before_mean, after_mean = (fmean(one) if one else None for one in (first, second))
            found.append(GaugeChange(which, before_mean, after_mean, _noise(first, second)))
    return tuple(found)


def _noise(first: Sequence[int], second: Sequence[int]) -> float | None:
    if min(len(first), len(second)) < FEWEST:
        return None
    return SURE * sqrt(sum(variance(one) / len(one) for one in (first, second)))


def _values(hosts: Sequence[HostGauges], which: RunGauge) -> list[int]:
    """One value for each host and time at which the gauge was read."""
    found: list[int] = []
    stride = max(1, -(-sum(one.points for one in hosts) // MOST_VALUES))
    for host in hosts:
        of_kinds = (host.of_kind(kind) for kind in which.kinds)
        subjects = next(filter(None, of_kinds), ())
        columns = [past for one in subjects if (past := host.past(one, which.gauge))]
        for values in list(zip(*columns, strict=True))[::stride]:
            known = [value for value in values if value != UNKNOWN]
            if known:
                found.append(sum(known) if which.is_sum else sum(known) // len(known))
    return found
