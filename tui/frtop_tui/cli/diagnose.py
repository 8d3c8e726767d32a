"""`frtop diagnose`: looks until it can say, then says it as text or JSON.

With files it says what these tell, and needs neither a network nor torch.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from frtop_tui.cli.connecting import connect
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import NoAgent, Unreachable, UsageError
from frtop_tui.export.flightrecorder.naming import pattern_of
from frtop_tui.export.opening import open_paths
from frtop_tui.report.document import document
from frtop_tui.report.exit_status import exit_status
from frtop_tui.report.text import text
from frtop_tui.sources.base import Source

HEALTHY_S: Final = 3.0
"""How long a job must look healthy before it is called so: longer than the shortest wait
that is out of the ordinary."""
ABSENT_S: Final = 3.0
"""How long to wait for the first answer of anybody."""


def run(options: argparse.Namespace) -> int:
    frame = _recorded(options) if options.paths else _live(options)
    if options.json:
        print(json.dumps(document(frame), indent=1))
    else:
        print("\n".join(text(frame)))
    return exit_status(frame)


def _recorded(options: argparse.Namespace) -> Frame:
    if options.connect != ["local"]:
        raise UsageError(
            "either files or hosts", "leave out --connect to read files, or the files to look live"
        )
    paths = [Path(path) for path in options.paths]
    return open_paths(paths, options.job, pattern_of(options.ranks_from))


def _live(options: argparse.Namespace) -> Frame:
    source = connect(options)
    try:
        return settle(source, options.wait, progress)
    finally:
        source.close()
        progress("")


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
        require_seen(frame, now - begin)
        pending = any(host.state == "connecting" for host in frame.hosts)
        sure = all(verdict.confidence == "confirmed" for verdict in frame.verdicts)
        # What is known for sure does not wait for a host that may never answer.
        if frame.verdicts and sure and (not pending or now - begin > ABSENT_S):
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


def require_seen(frame: Frame, waited_s: float) -> None:
    """Raises when nothing is seen after `waited_s`, and nothing will be.

    Raises:
        NoAgent: nothing to look at on this host.
        Unreachable: none of the hosts can be looked at.
    """
    if frame.ranks:
        return
    if frame.problem and waited_s > 0.5:
        text_, _, next_step = frame.problem.partition("; ")
        raise NoAgent(text_, next_step)
    failed = [host for host in frame.hosts if host.state == "failed"]
    if failed and len(failed) == len(frame.hosts) and waited_s > ABSENT_S:
        text_, _, next_step = failed[0].problem.partition("; ")
        raise Unreachable(text_, next_step)


def progress(line: str) -> None:
    """One line on stderr that replaces itself; nothing when nobody reads along."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
