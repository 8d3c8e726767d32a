"""Ten minutes of a gauge as a row of small bars. Pure; what was drawn is remembered."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from frtop_tui.job.host_gauges import UNKNOWN, GaugedSubject, HostGauges

BARS: Final = "▁▂▃▄▅▆▇█"
GAP: Final = " "
"""Where nothing was known: no bar, which would be a value."""


def graph(
    gauges: HostGauges, subject: GaugedSubject, gauge: str, width: int, highest: int = 0
) -> str:
    """The newest part of a gauge's history in `width` cells; "" where there is none.

    Args:
        gauges: of the subject's host.
        subject: whose gauge it is.
        gauge: its name.
        width: in cells.
        highest: what a full bar is; 0: the highest value that is shown.
    """
    values = gauges.past(subject, gauge)
    return sparkline(values, width, highest) if values and width > 0 else ""


@lru_cache(4096)
def sparkline(values: tuple[int, ...], width: int, highest: int = 0) -> str:
    """Values in a row of `width` bars, oldest first; several share a bar where they do not fit.

    A bar that is shared shows the highest of its values: a short peak is not lost.
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
