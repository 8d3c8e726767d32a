"""All gauges of one host, a line for each subject: its value now, and the last ten minutes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Final

from frtop_tui.job.gpus import power_text, throttle_text
from frtop_tui.job.host_gauges import GaugedSubject, HostGauges
from frtop_tui.job.naming import printable, rank_words
from frtop_tui.job.units import byte_rate, byte_size, cores, counted, percent
from frtop_tui.widgets.gauge_cells import FULL, disk_used, memory_used
from frtop_tui.widgets.gauge_cells import graph as padded_graph
from frtop_tui.widgets.spans import Line, clip, fit, join, plain, width_of, wrap

BARS: Final = 12
WIDE_BARS: Final = 30
_WIDE: Final = 110
_LABEL: Final = 9
RanksOf = Callable[[Iterable[int]], str]
"""Folded ranks of keys; "" for unknown keys."""


def gauge_lines(gauges: HostGauges, ranks_of: RanksOf, width: int) -> list[Line]:
    """A line for each subject, then the gauges that this host lacks."""
    rows: list[Line] = []
    for kind, subjects in groupby(gauges.subjects, attrgetter("kind")):
        known = [one for one in subjects if one.values or one.problem]
        if kind not in _WRITERS or not known:
            continue  # it is gone
        lines = _of_kind(gauges, known, WIDE_BARS if width >= _WIDE else BARS, ranks_of)
        if any(width_of(line) > width for line in lines):
            lines = _of_kind(gauges, known, BARS, ranks_of)
        # One line each: the lines below must not leave the pane.
        rows += [clip(line, width) for line in lines]
    if gauges.notes:
        rows += wrap("; ".join(map(printable, gauges.notes)), width, "dim", ("not      ", "dim"))
    return rows


def _of_kind(
    gauges: HostGauges, subjects: Iterable[GaugedSubject], bars: int, ranks_of: RanksOf
) -> list[Line]:
    """Their lines in full length: the label, then the parts."""
    return [
        ((fit(printable(label), max(_LABEL, len(label))) + " ", "strong"), *join(parts))
        for one in subjects
        for label, parts in _WRITERS[one.kind](gauges, one, bars, ranks_of(one.keys))
    ]


Parts = tuple[Line, ...]


def graph(
    gauges: HostGauges, subject: GaugedSubject, gauge: str, width: int, highest: int = 0
) -> str:
    """A graph without leading blanks: as wide as the known values."""
    return padded_graph(gauges, subject, gauge, width, highest).lstrip()


def _host(
    gauges: HostGauges, host: GaugedSubject, bars: int, _ranks: str
) -> Iterator[tuple[str, Parts]]:
    values = host.values
    load = values.get("load")
    yield (
        "cpu",
        (
            plain(_percent(values.get("cpu")) + _of(values.get("cores"), "cores")),
            plain(graph(gauges, host, "cpu", bars, FULL)),
            plain("" if load is None else f"load {load / 100:.1f}"),
            plain(_share("waits for disks", values.get("iowait")), "dim"),
            plain(_share("stolen by the hypervisor", values.get("steal")), "warn"),
        ),
    )
    used = memory_used(values)
    yield (
        "memory",
        (
            plain(
                _percent(used)
                + (f" of {byte_size(values['mem_total'])}" if used is not None else "")
            ),
            plain(_reversed_graph(gauges, host, bars)),
            plain(_amount("", values.get("mem_available"), " left")),
            plain(_amount("swap ", values.get("swap_used") or None)),
        ),
    )
    waits = [
        f"{name} {percent(values[gauge] / 1000)}"
        for name, gauge in (("cpu", "psi_cpu"), ("memory", "psi_memory"), ("disks", "psi_io"))
        if gauge in values
    ]
    if waits:
        yield (
            "pressure",
            (
                plain("some task waits for " + ", ".join(waits) + " of the time"),
                plain(graph(gauges, host, "psi_cpu", bars, FULL)),
            ),
        )


def _reversed_graph(gauges: HostGauges, host: GaugedSubject, bars: int) -> str:
    """Free memory: used memory has no series of its own."""
    left = graph(gauges, host, "mem_available", bars, host.values.get("mem_total", 0))
    return f"{left} left" if left else ""


def _gpu(
    gauges: HostGauges, gpu: GaugedSubject, bars: int, ranks: str
) -> Iterator[tuple[str, Parts]]:
    yield (
        f"gpu{gpu.name}",
        (
            plain(printable(gpu.problem), "warn"),
            plain(rank_words(ranks) if ranks else "", "dim"),
            *gpu_parts(gpu.values, graph(gauges, gpu, "use", bars, FULL)),
            plain(printable(gpu.detail).removeprefix("NVIDIA "), "dim"),
        ),
    )


def gpu_parts(values: Mapping[str, int], use: str = "") -> Parts:
    """The figures of a GPU by gauge; `use` is the graph of how busy it was."""
    busy, used, heat = values.get("use"), values.get("mem_used"), values.get("temperature")
    return (
        plain("busy: not known" if busy is None else f"{percent(busy / 1000)} busy"),
        plain(use),
        plain(throttle_text(values.get("throttle")), "warn"),
        plain(_clock(values.get("sm_mhz"), values.get("max_sm_mhz"))),
        plain(power_text(values.get("power_mw"), values.get("power_limit_mw"))),
        plain(_amount("", used) + _amount(" of ", values.get("mem_total") if used else None)),
        plain("" if heat is None else f"{heat} °C"),
    )


def _link(
    gauges: HostGauges, link: GaugedSubject, bars: int, _ranks: str
) -> Iterator[tuple[str, Parts]]:
    values = link.values
    speed = values.get("speed", 0)
    parts = [plain(printable(link.problem), "warn")]
    for gauge, word in (("received", "in"), ("sent", "out")):
        if gauge in values:
            line = graph(gauges, link, gauge, bars, speed)
            parts.append(plain(f"{word} {byte_rate(values[gauge])} {line}".rstrip()))
    parts.append(plain(f"of {byte_rate(speed)}" if speed else "", "dim"))
    for gauge in ("errors", "drops", "discards", "link_downed"):
        count = values.get(gauge)
        words = gauge.replace("link_downed", "times down")
        parts.append(plain(f"{count:,} {words} since boot" if count else "", "dim"))
    parts.append(plain(printable(link.detail), "dim"))
    yield link.name, tuple(parts)


def _disk(
    gauges: HostGauges, disk: GaugedSubject, bars: int, ranks: str
) -> Iterator[tuple[str, Parts]]:
    values = disk.values
    used = disk_used(disk)
    full = "" if used is None else f"{percent(used / 1000)} full"
    left = (
        f"{byte_size(values['free'])} of {byte_size(values['size'])} left"
        if used is not None
        else ""
    )
    line = graph(gauges, disk, "written", bars)
    written = (
        f"writes {byte_rate(values['written'])} {line}".rstrip() if "written" in values else ""
    )
    yield (
        disk.name,
        (
            plain(printable(disk.problem), "warn"),
            plain(full),
            plain(left),
            plain(f"reads {byte_rate(values['read'])}" if "read" in values else ""),
            plain(written),
            plain(f"busy {percent(values['busy'] / 1000)}" if "busy" in values else ""),
            plain(rank_words(ranks) if ranks else "", "dim"),
            plain(printable(disk.detail), "dim"),
        ),
    )


def _cgroup(
    gauges: HostGauges, group: GaugedSubject, bars: int, ranks: str
) -> Iterator[tuple[str, Parts]]:
    values = group.values
    limit, used = values.get("cpu_limit"), values.get("cpu")
    kills = values.get("oom_kills")
    yield "cgroup", (
        plain(rank_words(ranks) if ranks else ""),
        plain(printable(group.problem), "warn"),
        plain("" if used is None else cores(used) + (f" of {limit / 1000:.3g}" if limit else "")
              + " cores"),
        plain(graph(gauges, group, "cpu", bars, limit or 0)),
        plain(_share("held back in", values.get("throttled"), " of its periods"), "warn"),
        plain(_amount("", values.get("mem_used"), "") + _amount(" of ", values.get("mem_limit"))),
        plain(f"{kills} killed: out of memory" if kills else "", "warn"),
        plain(printable(group.name), "dim"),
    )  # fmt: skip


def _rank(
    gauges: HostGauges, rank: GaugedSubject, bars: int, ranks: str
) -> Iterator[tuple[str, Parts]]:
    used, count = rank.values.get("cpu"), rank.values.get("processes")
    if ranks:
        yield (
            f"rank {ranks}",
            (
                plain("" if used is None else f"{cores(used)} cores"),
                plain(graph(gauges, rank, "cpu", bars)),
                plain(_amount("", rank.values.get("mem"), " resident")),
                plain(_amount("", rank.values.get("gpu_mem"), " on its GPUs")),
                plain("" if count is None else counted(count, "process"), "dim"),
            ),
        )


_WRITERS = {
    "host": _host,
    "gpu": _gpu,
    "infiniband": _link,
    "nic": _link,
    "disk": _disk,
    "cgroup": _cgroup,
    "rank": _rank,
}


def _percent(permille: int | None) -> str:
    return "not known" if permille is None else percent(permille / 1000)


def _of(count: int | None, what: str) -> str:
    return f" of {count} {what}" if count else ""


def _share(what: str, permille: int | None, end: str = "") -> str:
    return f"{what} {percent(permille / 1000)}{end}" if permille else ""


def _amount(before: str, size: int | None, after: str = "") -> str:
    return "" if size is None else f"{before}{byte_size(size)}{after}"


def _clock(mhz: int | None, highest: int | None) -> str:
    if mhz is None:
        return ""
    return f"{mhz:,} of {highest:,} MHz" if highest else f"{mhz:,} MHz"
