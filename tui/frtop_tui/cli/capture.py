"""`frtop capture`: everything that can be known now, in one file."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Final

from frtop_tui.cli.connecting import connect
from frtop_tui.cli.diagnose import progress, settle
from frtop_tui.cli.writing import await_writing, require_folder
from frtop_tui.diagnosis.judged import Frame
from frtop_tui.errors import FrtopError
from frtop_tui.export.naming import default_path
from frtop_tui.job.coverage import unheard_text
from frtop_tui.job.model import Problem
from frtop_tui.job.naming import printable
from frtop_tui.sources.base import Source

SETTLE_S: Final = 10.0
"""A capture without a verdict is worth having: the evidence is what goes first."""


def run(options: argparse.Namespace) -> int:
    """Status 0 when the file is written, whatever it tells of the job."""
    path = Path(options.output) if options.output else None
    if path is not None:
        require_folder(path)
    source = connect(options)
    try:
        return take(source, path)
    finally:
        source.close()
        progress("")


def take(source: Source, path: Path | None, settle_s: float = SETTLE_S) -> int:
    """Looks, writes, and says what was written where.

    Raises:
        FrtopError: nothing could be seen, or nothing written.
    """
    frame = settle(source, settle_s, progress)
    if not frame.ranks:
        problem = frame.problem or Problem("no job is seen")
        raise FrtopError(problem.text, problem.next or "`frtop diagnose` says more")
    path = path or default_path(frame, time.time_ns())
    source.capture(path)
    told = await_writing(source, "capture", path, "ranks")
    progress("")
    size = f"{told.size / 1e6:.1f} MB" if told.size >= 1e6 else f"{told.size / 1e3:.0f} KB"
    print(f"{told.path}  {size}")
    if told.problem:
        print(f"missing: {printable(str(told.problem))}")
    frame = source.frame()
    if not frame.coverage.complete:
        print(unheard_text(frame.coverage))
    print(_headline(frame))
    return 0


def _headline(frame: Frame) -> str:
    if not frame.verdicts:
        return f"{frame.health}: nobody is blamed"
    return "\n".join(printable(verdict.headline) for verdict in frame.verdicts)
