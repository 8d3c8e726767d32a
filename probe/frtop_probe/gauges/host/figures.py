"""Figures of the host (processors, memory, TCP, pressure), and of ranks with their children."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from frtop_probe.gauges.host.rates import Rates
from frtop_probe.gauges.readings import SubjectReading, known
from frtop_probe.proc import pid_stat
from frtop_probe.proc.kernel_files import named_numbers, number, read_text

_COLUMNS: Final = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
"""Columns of the first line; `user` includes time of guests."""
_KIB: Final = 1024
MIN_SEGMENTS: Final = 500
"""If fewer segments were sent since the last reading, a few lost ones prove nothing."""
NO_PRESSURE: Final = "this kernel does not report pressure (PSI)"
KINDS: Final = ("cpu", "memory", "io")
_LINE: Final = re.compile(r"(some|full) avg10=(\d{1,3})\.(\d{2}) ")
PAGE: Final = os.sysconf("SC_PAGE_SIZE")
MAX_PROCESSES: Final = 64
"""Most processes of one rank."""


def parse_stat(text: str) -> tuple[dict[str, int], int]:
    """Returns clock ticks of all processors by activity, and how many processors there are."""
    ticks: dict[str, int] = {}
    cores = 0
    for line in text.splitlines():
        words = line.split()
        if not words or not words[0].startswith("cpu"):
            continue
        if words[0] == "cpu":
            values = [number(word) for word in words[1:]]
            ticks = {n: v for n, v in zip(_COLUMNS, values, strict=False) if v is not None}
        else:
            cores += 1
    return ticks, cores


def parse_load(text: str) -> int | None:
    """Returns the load average of the last minute in hundredths."""
    integer, dot, part = (text.split() or [""])[0].partition(".")
    if not dot or len(part) != 2 or number(integer) is None or number(part) is None:
        return None
    return int(integer) * 100 + int(part)


class CpuSource:
    """Activity of all processors since the last reading, from /proc/stat and /proc/loadavg."""

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._rates = Rates()

    def read(self, now_ns: int) -> dict[str, int]:
        """Returns gauges of the host; shares refer to all processors together."""
        ticks, cores = parse_stat(read_text(self._proc / "stat", 1 << 20))
        rises = {name: self._rates.rise(name, ticks.get(name), now_ns) for name in _COLUMNS}
        rose = {name: rise[0] for name, rise in rises.items() if rise is not None}
        total = sum(rose.values())
        shares: dict[str, int | None] = {"cpu": None, "iowait": None, "steal": None}
        if total and {"user", "system", "idle"} <= rose.keys():
            idle, waits = rose["idle"], rose.get("iowait", 0)
            shares = {
                "cpu": 1000 * (total - idle - waits) // total,
                "iowait": 1000 * waits // total,
                "steal": 1000 * rose.get("steal", 0) // total,
            }
        load = parse_load(read_text(self._proc / "loadavg"))
        return known(cores=cores or None, load=load, **shares)


class MemorySource:
    """Bytes now (/proc/meminfo); OOM kills since boot (/proc/vmstat, Linux 4.13)."""

    def __init__(self, proc: Path) -> None:
        self._proc = proc

    def read(self) -> dict[str, int]:
        """Gauges of the host."""
        found = named_numbers(read_text(self._proc / "meminfo"))
        total, free = found.get("SwapTotal"), found.get("SwapFree")
        swapped = total - free if total is not None and free is not None else None
        kills = named_numbers(read_text(self._proc / "vmstat")).get("oom_kill")
        return known(
            mem_total=_bytes(found.get("MemTotal")),
            mem_available=_bytes(found.get("MemAvailable")),
            swap_used=_bytes(swapped),
            oom_kills=kills,
        )


def _bytes(kib: int | None) -> int | None:
    return None if kib is None else kib * _KIB


def parse_snmp(text: str) -> dict[str, int]:
    """Returns TCP's counters by name; the first of two `Tcp:` lines has the names."""
    lines = [line.split()[1:] for line in text.splitlines() if line.startswith("Tcp:")]
    if len(lines) != 2:
        return {}
    values = (number(word) for word in lines[1])
    return {name: v for name, v in zip(lines[0], values, strict=False) if v is not None}


class TcpSource:
    """The share of segments that TCP resent since the last reading, from /proc/net/snmp.

    Interfaces count only their own losses. Losses in a switch or a distant cable show only as
    retransmissions by the sender. RDMA is not included.
    """

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._rates = Rates()

    def read(self, now_ns: int) -> dict[str, int]:
        """Returns gauges in permille; none if too few segments were sent."""
        counters = parse_snmp(read_text(self._proc / "net/snmp"))
        sent, again = (
            self._rates.rise(name, counters.get(name), now_ns)
            for name in ("OutSegs", "RetransSegs")
        )
        if sent is None or again is None or sent[0] + again[0] < MIN_SEGMENTS:
            return {}
        return known(retransmits=1000 * again[0] // (sent[0] + again[0]))


def parse_pressure(text: str) -> dict[str, int]:
    """Returns permille of the last ten seconds in which `some` tasks waited, and all (`full`).

    Lines are `some avg10=1.50 avg60=0.00 avg300=0.00 total=123`.
    """
    found = {}
    for line in text.splitlines():
        if (match := _LINE.match(line)) is not None:
            found[match[1]] = min(1000, int(match[2]) * 10 + int(match[3]) // 10)
    return found


def read_pressure(folder: Path, suffix: str = "") -> dict[str, int]:
    """Reads pressure stall information: how long tasks waited for CPU, memory or disks.

    Kernels before 4.20 or without this feature have no such files: then the result is empty. We use
    the kernel's ten-second average, because the kernel updates its totals only every two seconds,
    as often as we read.

    Args:
        folder: /proc/pressure, or the folder of a cgroup (version 2).
        suffix: end of the files' names.
    """
    values = {}
    for kind in KINDS:
        waited = parse_pressure(read_text(folder / f"{kind}{suffix}"))
        if "some" in waited:
            values[f"psi_{kind}"] = waited["some"]
        if "full" in waited and kind != "cpu":  # always 0 for a host
            values[f"psi_{kind}_full"] = waited["full"]
    return values


class TreeSource:
    """CPU time and memory of ranks with their children, such as loaders, from /proc/PID/stat.

    When a child ends, its time is added to its parent's. Only children of main threads are
    followed, such as a DataLoader's: a rank has hundreds of threads, each with its own list of
    children.
    """

    def __init__(self, proc: Path, ticks_per_s: int, page_size: int = PAGE) -> None:
        self._proc = proc
        self._page_size = page_size
        self._ticks_per_s = ticks_per_s
        self._rates = Rates()

    def read(self, pids: Iterable[int], now_ns: int) -> Iterator[SubjectReading]:
        """Yields a subject per living rank; `cpu` is in thousandths of a core, `mem` in bytes."""
        for pid in pids:
            ticks, pages, processes = self._tree(pid)
            if processes:
                thousandths = ticks * 1000 // self._ticks_per_s
                cpu = self._rates.per_second(pid, thousandths, now_ns)
                yield SubjectReading("rank", str(pid), known(
                    cpu=cpu, processes=processes, mem=pages * self._page_size or None
                ), pids=(pid,))  # fmt: skip

    def _tree(self, root: int) -> tuple[int, int, int]:
        total = pages = processes = 0
        waiting = [root]
        while waiting and processes < MAX_PROCESSES:
            pid = waiting.pop()
            found = pid_stat.read(f"{self._proc}/{pid}")
            if found is None:
                continue
            processes += 1
            total += found.cpu_ticks + found.waited_ticks
            pages += found.pages
            children = read_text(f"{self._proc}/{pid}/task/{pid}/children")
            waiting += filter(None, map(number, children.split()))
        return total, pages, processes
