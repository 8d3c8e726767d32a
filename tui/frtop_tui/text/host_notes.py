"""What is out of the ordinary about hosts, as lines of a report: facts, and no verdict."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Final

from frtop_tui.diagnosis.evidence.host_facts import facts_of
from frtop_tui.diagnosis.model import Frame
from frtop_tui.diagnosis.words.fact_words import fact_text
from frtop_tui.job.model import HostView
from frtop_tui.job.naming import listed

MOST: Final = 16
"""Lines: of more hosts only the names follow."""


def wall_offset_ns(frame: Frame, host: HostView) -> int:
    """What to add to a host's monotonic times to get the operator's wall clock."""
    return host.monotonic_ns + frame.wall_ns - frame.now_ns


def time_of_day(wall_ns: int) -> str:
    """`14:02` in the reader's time zone."""
    return f"{datetime.fromtimestamp(wall_ns / 1e9).astimezone():%H:%M}"


def _local_time(offset_ns: int, at_ns: int) -> str:
    return time_of_day(at_ns + offset_ns)


def rank_keys(frame: Frame, host: HostView) -> dict[int, int]:
    """The ranks of a host by their keys."""
    return {view.key: view.rank for view in frame.ranks.values() if view.host == host.name}


def host_notes(frame: Frame) -> list[str]:
    """A line for each fact about a host that is reporting, or was when this was recorded."""
    lines: list[str] = []
    left: list[str] = []
    for host in frame.hosts:
        if host.state != "reporting" or not (facts := facts_of(host.gauges)):
            continue
        if len(lines) >= MOST:
            left.append(host.name)
            continue
        clock, ranks = partial(_local_time, wall_offset_ns(frame, host)), rank_keys(frame, host)
        lines += [f"{host.name}: {fact_text(fact, clock, ranks)}" for fact in facts]
    if left:
        lines.append(f"out of the ordinary on more hosts: {listed(left, MOST)}")
    return lines
