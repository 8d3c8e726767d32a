"""Pressure stall information (PSI): for how long somebody waited for CPU, memory or disks.

Of the host in /proc/pressure, of a cgroup (version 2) in its folder. Missing on kernels before
4.20, or built or booted without it. The kernel's own average over ten seconds is taken: its totals
are brought up to date every two seconds only, as often as we read.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from frtop_probe.proc.kernel_files import read_text

NO_PRESSURE: Final = "pressure is not offered by this kernel"
KINDS: Final = ("cpu", "memory", "io")
_LINE: Final = re.compile(r"(some|full) avg10=(\d{1,3})\.(\d{2}) ")


def parse_pressure(text: str) -> dict[str, int]:
    """Permille of the last ten seconds, by `some` (any task waited) and `full` (all did).

    Lines are `some avg10=1.50 avg60=0.00 avg300=0.00 total=123`.
    """
    found = {}
    for line in text.splitlines():
        if (match := _LINE.match(line)) is not None:
            found[match[1]] = min(1000, int(match[2]) * 10 + int(match[3]) // 10)
    return found


def read_pressure(folder: Path, suffix: str = "") -> dict[str, int]:
    """Gauges of what a folder is of, with a file for each kind; empty where there is none.

    Args:
        folder: of the host or a cgroup.
        suffix: at the end of the files' names.
    """
    values = {}
    for kind in KINDS:
        waited = parse_pressure(read_text(folder / f"{kind}{suffix}"))
        if "some" in waited:
            values[f"psi_{kind}"] = waited["some"]
        if "full" in waited and kind != "cpu":  # of a host it is 0 by definition
            values[f"psi_{kind}_full"] = waited["full"]
    return values
