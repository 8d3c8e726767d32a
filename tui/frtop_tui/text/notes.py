"""What limits or accompanies a verdict: notes on the recording, the job, its ranks and hosts.

Screens, `frtop diagnose`, `frtop jobs` and reports choose from these.
"""

from __future__ import annotations

from datetime import datetime
from functools import cache
from importlib import metadata
from typing import Final

from frtop_tui.diagnosis.evidence.host_facts import facts_of_host
from frtop_tui.diagnosis.model import Frame
from frtop_tui.diagnosis.words.fact_words import Clock, fact_text
from frtop_tui.job.job_activity import rank_notes
from frtop_tui.job.model import HostState, HostView
from frtop_tui.job.naming import folded_hosts, listed, printable
from frtop_tui.job.units import counted, of_time

HOST_STATES: Final[dict[HostState, str]] = {
    "failed": "cannot be reached, or refuses our key",
    "silent": "no longer reporting: its agent, the host or the network is down",
    "connecting": "no answer yet",
    "reporting": "its agent answers",
}
_MOST_UNREACHABLE: Final = 4
_MOST_FACTS: Final = 16
"""Lines; after that only the names of hosts."""


def recorded_lines(frame: Frame) -> list[str]:
    """Where and when a frame was recorded, and what its files lack; empty for a live frame."""
    recorded = frame.recorded
    if recorded is None:
        return []
    when = of_time(recorded.wall_ns)
    by = f" by {recorded.by}" if recorded.by else ""
    ages = any(view.evidence.has_ages for view in frame.ranks.values())
    then = "; all ages are as of that time" if when and (ages or not frame.ranks) else ""
    return [
        f"{recorded.kind}{when}{by}: {recorded.path}{then}",
        *(f"note  {note}" for note in recorded.notes),
    ]


def job_notes(frame: Frame, beginnings: tuple[str, ...] = ("",)) -> list[str]:
    """Notes on the job, on its unseen parts, and those notes of ranks that begin like this."""
    missing = (note.text for note in frame.coverage.notes)
    ranks = rank_notes(frame.ranks.values(), beginnings)
    return [*frame.notes, *other_versions(frame), *missing, *ranks]


def other_versions(frame: Frame) -> list[str]:
    """Which agents are of another frtop than this: each leaves out what it does not know."""
    if frame.recorded is not None:
        return []
    hosts: dict[str, list[str]] = {}
    own = own_version()
    for host in frame.hosts:
        if host.version and host.version != own:
            hosts.setdefault(host.version, []).append(host.name)
    return [
        f"the agent on {folded_hosts(tuple(names))} is frtop {printable(version)}, this is {own}:"
        " each leaves out what it does not know"
        for version, names in sorted(hosts.items())
        if own
    ]


@cache
def own_version() -> str:
    """The version of this frtop; "" when it runs from a checkout that is not installed."""
    try:
        return metadata.version("frtop")
    except metadata.PackageNotFoundError:
        return ""


def why_silent(host: HostView) -> str:
    """Why a host does not report; "" if it does."""
    if host.problem is not None:
        return str(host.problem)
    if host.state == "reporting":
        return ""
    if host.state == "connecting" and host.progress:
        return f"connecting: {host.progress}"
    return HOST_STATES[host.state]


def unreachable_hosts(frame: Frame) -> list[str]:
    """The first hosts that do not report, and why."""
    silent = [host for host in frame.hosts if host.state != "reporting"]
    lines = [
        str(host.problem or f"{host.name}: {why_silent(host)}")
        for host in silent[:_MOST_UNREACHABLE]
    ]
    more = len(silent) - len(lines)
    return [*lines, f"{counted(more, 'more host')} unreachable"] if more > 0 else lines


def host_facts(frame: Frame) -> list[str]:
    """What is out of the ordinary in gauges, by host: a line for each fact."""
    lines: list[str] = []
    left: list[str] = []
    for host in frame.hosts:
        if host.state != "reporting" or not (facts := facts_of_host(host)):
            continue
        if len(lines) >= _MOST_FACTS:
            left.append(host.name)
            continue
        clock, ranks = clock_of(frame, host), rank_keys(frame, host)
        lines += [f"{host.name}: {fact_text(fact, clock, ranks)}" for fact in facts]
    if left:
        lines.append(f"out of the ordinary on more hosts: {listed(left, _MOST_FACTS)}")
    return lines


def clock_of(frame: Frame, host: HostView) -> Clock:
    """Turns a host's monotonic times into `14:02` in the reader's time zone."""
    offset_ns = host.monotonic_ns + frame.wall_ns - frame.now_ns

    def clock(host_ns: int) -> str:
        return f"{datetime.fromtimestamp((host_ns + offset_ns) / 1e9).astimezone():%H:%M}"

    return clock


def rank_keys(frame: Frame, host: HostView) -> dict[int, int]:
    """The ranks of a host by their keys."""
    return {view.key: view.rank for view in frame.ranks.values() if view.host == host.name}
