"""`frtop capture`: writes everything known about a job to one file."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Final

from frtop_tui.cli.files import require_writable, wait_for_file
from frtop_tui.cli.live import connect, show_progress, wait_for_ranks
from frtop_tui.cli.settings import folder_of
from frtop_tui.connect.base import Source
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import FrtopError
from frtop_tui.files.output_path import default_path
from frtop_tui.job.coverage import coverage_text
from frtop_tui.job.model import Problem
from frtop_tui.job.naming import printable
from frtop_tui.job.units import byte_size
from frtop_tui.statistics.wanted import StatisticsWanted

VERDICT_S: Final = 10.0
"""How long to wait for all ranks, and then for a verdict. A capture without one is worth having:
evidence vanishes."""


def run(options: argparse.Namespace) -> int:
    """Returns 0 when the file is written, whatever the state of the job."""
    path = Path(options.output) if options.output else None
    if path is not None:
        require_writable(path)
    source = connect(options)
    source.want_statistics(StatisticsWanted(), whom="verdicts")  # they tell who is slow
    try:
        return capture(source, path, redact=options.redact, folder=folder_of(options))
    finally:
        source.close()
        show_progress("")


def capture(
    source: Source,
    path: Path | None,
    wait_s: float = VERDICT_S,
    *,
    redact: bool = False,
    folder: Path | None = None,
) -> int:
    """Collects while the verdict settles, writes the capture, prints its path and the verdict.

    Interrupted once, it writes what has come by then.

    Raises:
        FrtopError: there is no job, or the file could not be written.
    """
    frame = wait_for_ranks(source, wait_s, show_progress)
    if not frame.ranks:
        problem = frame.problem or Problem("no job found")
        raise FrtopError(problem.text, problem.next or "`frtop diagnose` shows why")
    path = path or default_path(frame, time.time_ns(), redact=redact, folder=folder)
    source.capture(path, settle_s=wait_s, redact=redact)
    try:
        writing = wait_for_file(source, "capture", path, "ranks")
    except KeyboardInterrupt:
        show_progress("")
        print("frtop: interrupted: writing what has arrived; ^C again gives up", file=sys.stderr)
        source.finish_capture()
        writing = wait_for_file(source, "capture", path, "ranks")
    show_progress("")
    print(f"{writing.path}  {byte_size(writing.size)}")
    if writing.problem:
        print(f"missing: {printable(str(writing.problem))}")
    frame = source.frame()
    if not frame.coverage.complete:
        print(coverage_text(frame.coverage))
    print(_headlines(frame))
    return 0


def _headlines(frame: Frame) -> str:
    if not frame.verdicts:
        return f"{frame.health}: no verdict"
    return "\n".join(printable(verdict.headline) for verdict in frame.verdicts)
