"""Where a recorded frame comes from: what must be in sight wherever it is shown."""

from __future__ import annotations

from datetime import datetime

from frtop_tui.job.model import Recorded
from frtop_tui.widgets.spans import Line, fit
from frtop_tui.widgets.writings import place


def moment(wall_ns: int) -> str:
    """`2026-11-20 03:02`, in the time zone of who looks."""
    return f"{datetime.fromtimestamp(wall_ns / 1e9).astimezone():%Y-%m-%d %H:%M}"


def origin(recorded: Recorded) -> str:
    """`CAPTURE of 2026-11-20 03:02 by alice@laptop`."""
    by = f" by {recorded.by}" if recorded.by else ""
    return f"{recorded.kind.upper()} of {moment(recorded.wall_ns)}{by}"


def origin_line(recorded: Recorded, width: int) -> Line:
    """A whole line, so that nobody takes what is below for the present."""
    words = f" {origin(recorded)} · not live, times as of then"
    room = width - len(words) - 3
    path = place(recorded.path)
    return ((fit(f"{words} · {path}" if len(path) <= room else words, width), "cursor"),)
