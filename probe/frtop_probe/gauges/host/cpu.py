"""The host's processors: /proc/stat and /proc/loadavg."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from frtop_probe.gauges.host.rates import Rates
from frtop_probe.gauges.host.subjects import known
from frtop_probe.proc.kernel_files import number, read_text

_COLUMNS: Final = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
"""Of the first line; what guests take is in `user` already."""


def parse_stat(text: str) -> tuple[dict[str, int], int]:
    """Clock ticks of all processors by what they did, and how many processors there are."""
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
    """The load of the last minute in hundredths."""
    integer, dot, part = (text.split() or [""])[0].partition(".")
    if not dot or len(part) != 2 or number(integer) is None or number(part) is None:
        return None
    return int(integer) * 100 + int(part)


class CpuSource:
    """What all processors did since the last reading."""

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._rates = Rates()

    def read(self, now_ns: int) -> dict[str, int]:
        """Gauges of the host; shares are of all its processors together."""
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
