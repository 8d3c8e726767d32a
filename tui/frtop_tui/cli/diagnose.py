"""`frtop diagnose`: looks until it can say, then says it as text or JSON."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Final

from frtop_tui.diagnosis.report import document, exit_status, text
from frtop_tui.errors import NoAgent, Unreachable
from frtop_tui.job.model import Frame
from frtop_tui.sources.base import Source
from frtop_tui.sources.live import LiveSource

HEALTHY_S: Final = 3.0
"""How long a job must look healthy before it is called so: longer than the shortest wait
that is out of the ordinary."""
ABSENT_S: Final = 3.0
"""How long to wait for the first answer of anybody."""


def run(options: argparse.Namespace) -> int:
    source = LiveSource(options.connect, options.job)
    try:
        frame = settle(source, options.wait, progress)
    finally:
        source.close()
        progress("")
    if options.json:
        print(json.dumps(document(frame), indent=1))
    else:
        print("\n".join(text(frame)))
    return exit_status(frame)


def settle(source: Source, wait_s: float, tell: Callable[[str], None]) -> Frame:
    """Frames until one can be reported, or time is up.

    Raises:
        NoAgent: nothing to look at on this host.
        Unreachable: none of the hosts can be looked at.
    """
    begin = time.monotonic()
    healthy_since: float | None = None
    while True:
        frame = source.frame()
        now = time.monotonic()
        if frame.problem and not frame.ranks and now - begin > 0.5:
            text_, _, next_step = frame.problem.partition("; ")
            raise NoAgent(text_, next_step)
        if frame.hosts and now - begin > ABSENT_S and not frame.ranks:
            failed = [host for host in frame.hosts if host.state == "failed"]
            if len(failed) == len(frame.hosts):
                text_, _, next_step = failed[0].problem.partition("; ")
                raise Unreachable(text_, next_step)
        pending = any(host.state == "connecting" for host in frame.hosts)
        if (
            frame.verdicts
            and not pending
            and all(verdict.confidence == "confirmed" for verdict in frame.verdicts)
        ):
            return frame
        if frame.health == "ended" and not frame.verdicts and not pending:
            return frame
        if frame.health == "healthy" and not frame.verdicts:
            healthy_since = healthy_since or now
            if not pending and now - healthy_since > HEALTHY_S:
                return frame
        else:
            healthy_since = None
        if now - begin > wait_s:
            return frame
        tell(f"looking: {frame.health}, {frame.coverage.heard} of {frame.coverage.expected} ranks")
        time.sleep(0.05)


def progress(line: str) -> None:
    """One line on stderr that replaces itself; nothing when nobody reads along."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
