"""Gauges of a host in a few cells each, for its row in the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from weakref import WeakKeyDictionary

from frtop_probe import wire
from frtop_tui.job.host_gauges import UNKNOWN, GaugedSubject, HostGauges
from frtop_tui.job.units import byte_rate, percent
from frtop_tui.widgets.spans import Span

BARS: Final = "▁▂▃▄▅▆▇█"
GAP: Final = " "
"""For unknown values: even the lowest bar would be a value."""


def graph(
    gauges: HostGauges, subject: GaugedSubject, gauge: str, width: int, highest: int = 0
) -> str:
    """The end of a gauge's history in `width` cells; "" if there is none.

    `highest` is a full bar; 0: the highest value shown.
    """
    column = subject.history.get(gauge)
    if column is None or width <= 0:
        return ""
    drawn, key = _DRAWN.setdefault(column, {}), (gauges.points, width, highest)
    if key not in drawn:
        values = gauges.past(subject, gauge)
        drawn[key] = sparkline(values, width, highest) if values else ""
    return drawn[key]


_DRAWN: Final[WeakKeyDictionary[wire.HistoryColumn, dict[tuple[int, int, int], str]]] = (
    WeakKeyDictionary()
)
"""Graphs of a history, for as long as somebody has it."""


def sparkline(values: tuple[int, ...], width: int, highest: int = 0) -> str:
    """Values in a row of `width` bars, oldest first.

    If there are more values, several share a bar, which shows the highest: no peak is lost.
    """
    step = -(-len(values) // width)
    shared = [max(values[max(0, end - step) : end]) for end in range(len(values), 0, -step)][::-1]
    most = highest or max(shared, default=0)
    top = len(BARS) - 1
    bars = [
        GAP if value == UNKNOWN else BARS[min(top, value * top // most) if most > 0 else 0]
        for value in shared
    ]
    return "".join(bars).rjust(width)


FULL: Final = 1000
_HIGH: Final = 900
"""From here on, a share gets another tone; words say whether it is trouble."""
NOTHING: Final[Span] = ("", "")


def cpu_cell(gauges: HostGauges | None, bars: int) -> Span:
    """`61 % ▂▂▃▅`."""
    return _share(gauges, "cpu", bars)


def memory_cell(gauges: HostGauges | None) -> Span:
    """`61 %` of the host's memory is in use."""
    used = memory_used(gauges.host) if gauges is not None else None
    return NOTHING if used is None else (percent(used / 1000), _tone(used))


def memory_used(values: Mapping[str, int]) -> int | None:
    """Permille of a host's memory that is in use; None if unknown."""
    total, left = values.get("mem_total"), values.get("mem_available")
    return None if not total or left is None else 1000 * (total - left) // total


def net_cell(gauges: HostGauges | None, bars: int) -> Span:
    """`3.1/3.0 GB/s ▅▆▅`: in and out through the busiest link, InfiniBand before others."""
    link = busiest_link(gauges)
    if gauges is None or link is None:
        return NOTHING
    received, sent = link.values.get("received", 0), link.values.get("sent", 0)
    unit = byte_rate(max(received, sent)).split(" ")[1]
    scale = {"B/s": 1, "KB/s": 10**3, "MB/s": 10**6, "GB/s": 10**9}.get(unit, 10**12)
    line = graph(gauges, link, "received", bars, link.values.get("speed", 0))
    shown = "/".join(_short(rate / scale) for rate in (received, sent))
    return (f"{shown} {unit} {line}".rstrip(), "")


def busiest_link(gauges: HostGauges | None) -> GaugedSubject | None:
    """The link that carries most; among equals InfiniBand, then the first by name."""
    if gauges is None:
        return None
    links = [*gauges.of_kind("infiniband"), *gauges.of_kind("nic")]
    return max(links, key=lambda one: one.values.get("received", 0) + one.values.get("sent", 0),
               default=None)  # fmt: skip


def disk_cell(gauges: HostGauges | None) -> Span:
    """`/tmp 41 %`: a file system that does not answer, else the fullest."""
    if gauges is None:
        return NOTHING
    disks = gauges.of_kind("disk")
    silent = next((one for one in disks if one.problem), None)
    if silent is not None:
        return (f"{silent.name} ?", "warn")
    shares = [(share, one.name) for one in disks if (share := disk_used(one)) is not None]
    if not shares:
        return NOTHING
    share, name = max(shares)
    return (f"{name} {percent(share / 1000)}", _tone(share))


def disk_used(disk: GaugedSubject) -> int | None:
    """Permille of a file system that is in use."""
    size, free = disk.values.get("size"), disk.values.get("free")
    return None if not size or free is None else 1000 * (size - free) // size


def gpu_cell(gauges: HostGauges | None) -> Span:
    """` 98  98 56 %`: how busy each GPU is."""
    gpus = gauges.of_kind("gpu") if gauges is not None else ()
    if not gpus:
        return NOTHING
    uses = [one.values.get("use") for one in gpus]
    shown = " ".join("  ?" if use is None else f"{use // 10:>3}" for use in uses)
    return (f"{shown} %", "")


def _share(gauges: HostGauges | None, gauge: str, bars: int) -> Span:
    if gauges is None or (value := gauges.host.get(gauge)) is None:
        return NOTHING
    subject = gauges.of_kind("host")[0]
    line = graph(gauges, subject, gauge, bars, FULL)
    return (f"{percent(value / 1000):>5} {line}".rstrip(), _tone(value))


def _short(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"


def _tone(permille: int) -> str:
    return "warn" if permille >= _HIGH else ""
