"""The health of a job in words, with since when: the same on screens and in text."""

from __future__ import annotations

import time
from typing import Final

from frtop_tui.diagnosis.cases.slow.detect import compared
from frtop_tui.diagnosis.model import Frame
from frtop_tui.diagnosis.thresholds import MIN_SLOW_PARTS, SLOW_LASTS_NS
from frtop_tui.job.model import Health
from frtop_tui.job.naming import folded
from frtop_tui.job.units import duration, percent
from frtop_tui.job.unprepared import age_words, is_least_since

_DAY_S: Final = 86_400
_NO_VERDICT: Final[dict[Health, str]] = {
    "connecting": "connecting: no report yet",
    "empty": "agents answer, but no job is running",
    "ended": "its ranks have ended, and nobody waits for any of them",
    "unreachable": "no rank that may still run is reporting: this is the last known state",
    "undecided": "frtop saw no long wait, but not enough to call the job healthy",
    "waiting": "no verdict yet: the waits may still end",
}
_SEARCHING: Final = "agents answer, and still search: no job so far"
_NO_LONG_WAIT: Final = "no rank waits unusually long"


def no_verdict_words(frame: Frame) -> str:
    """What is known of a job without a verdict.

    That no rank hangs is clear at once. That none is slow is clear, and said, only after a while.
    """
    if frame.health in _NO_VERDICT:
        searching = frame.health == "empty" and any(host.searching for host in frame.hosts)
        return _SEARCHING if searching else _NO_VERDICT[frame.health]
    if not frame.ranks:
        return "no ranks yet"
    if frame.recorded is not None or frame.health != "healthy":
        return _NO_LONG_WAIT
    found = compared(frame)
    if not found.ns:
        return f"{_NO_LONG_WAIT}; whether one is slow is not known: {_why_unknown(frame)}"
    if found.late:
        return (
            f"{_NO_LONG_WAIT}; late again and again: {folded(found.late)}, perhaps only because"
            " they waited for others"
        )
    ops = f", by one op in {found.stride}" if found.stride > 1 else ""
    rest = f"; not compared: {folded(found.left_out)}" if found.left_out else ""
    return (
        f"{_NO_LONG_WAIT}, and none was late again and again in {duration(found.ns / 1e9)}{ops}:"
        f" {percent(found.share)} of the time or more would show{rest}"
    )


def _why_unknown(frame: Frame) -> str:
    if frame.statistics is None:
        return "its ranks have not been asked yet"
    groups = frame.statistics.groups
    spans = [one.arrivals[-1].last_ns - one.arrivals[0].first_ns for one in groups if one.arrivals]
    if not spans:
        return "frtop does not know when its ranks issued ops"
    most = max(len(one.arrivals) for one in groups)
    if max(spans) >= SLOW_LASTS_NS and most >= MIN_SLOW_PARTS:
        return "no two ranks with the same work could be compared"
    return "frtop has seen too few ops, or ops of too short a time"


def health_words(frame: Frame) -> str:
    """`HUNG for 4m12s`, `SLOW since 14:02 (38m05s)`; without a time if unknown.

    A slow job is slow for hours. Its start is more useful: that is the time to look up in logs.
    """
    word = "NO JOB" if frame.health == "empty" else frame.health.upper()
    if is_partly_healthy(frame):
        word += " (as far as reported)"
    if not frame.since_ns or frame.health in ("connecting", "empty"):
        return word
    lasts_s = max(0.0, (frame.until_ns - frame.since_ns) / 1e9)
    if frame.health != "slow":
        lasts = age_words(lasts_s, least=is_least_since(frame, frame.since_ns))
        if frame.is_over and lasts_s < 1:
            return f"{word}{_end(frame)}"  # the fault was the end
        return f"{word} for {lasts}{_end(frame)}"
    slow = frame.verdicts[0].slow if frame.verdicts else None
    lasts = age_words(lasts_s, least=slow is not None and slow.at_least)
    perhaps = "" if frame.verdicts and frame.verdicts[0].confidence == "confirmed" else "PERHAPS "
    return f"{perhaps}{word} since {_clock(frame, lasts_s)} ({lasts}){_end(frame)}"


def _end(frame: Frame) -> str:
    """When the job ended in which this was so; "" if it lives, or if its end is what is shown."""
    if not frame.is_over:
        return ""
    ago_s = (frame.now_ns - frame.until_ns) / 1e9
    return ", then it ended" if frame.recorded else f", ended {duration(ago_s)} ago"


def is_partly_healthy(frame: Frame) -> bool:
    """Whether nothing is wrong with a job of which some ranks do not report."""
    return frame.health == "healthy" and not frame.coverage.complete


def _clock(frame: Frame, lasts_s: float) -> str:
    """When it began, in the viewer's time zone; with its date if that is a day ago or more."""
    at = time.localtime(frame.wall_ns / 1e9 - lasts_s)
    return time.strftime("%Y-%m-%d %H:%M" if lasts_s >= _DAY_S else "%H:%M", at)
