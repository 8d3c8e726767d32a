"""Reads what the recorders of one test's ranks left behind: rings, and lines in its output."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from frtop_probe.ring import layout
from frtop_probe.ring.header import RingError
from frtop_probe.ring.layout import State, StatusCell
from frtop_probe.ring.reader import Ring
from torch_suite.results import Recorded

LINE: Final = b"frtop: "
"""How every line begins that the recorder writes to stderr."""
MAX_LINES: Final = 20


def read(rings: Path, output: Path) -> Recorded:
    """Returns the sums over all rings in a folder; a damaged ring counts as a finding."""
    lines = _lines(output)
    sums = {"native": 0, "ops": 0, "hook_errors": 0, "off": 0, "lost": 0}
    found = sorted(rings.glob(f"*{layout.SUFFIX}"))
    for path in found:
        try:
            ring = Ring(path)
        except (RingError, OSError) as error:
            lines.append(f"{path.name}: {error}")
            continue
        settings = dict(ring.rank_identity.get("settings") or ())
        sums["native"] += settings.get("frtop kernels") == "native"
        sums["ops"] += ring.ops()
        sums["hook_errors"] += ring.cell(StatusCell.HOOK_ERRORS)
        sums["off"] += ring.cell(StatusCell.STATE) == State.OFF
        sums["lost"] += ring.cell(StatusCell.SIDE_LOST) + ring.cell(StatusCell.PENDING_LOST)
        ring.close()
    return Recorded(rings=len(found), **sums, lines=tuple(lines[:MAX_LINES]))


def _lines(output: Path) -> list[str]:
    """Returns frtop's lines, also where another rank's output comes before them."""
    try:
        text = output.read_bytes()
    except OSError:
        return []
    return [
        line[line.index(LINE) :].decode(errors="replace")[:300]
        for line in text.splitlines()
        if LINE in line
    ]
