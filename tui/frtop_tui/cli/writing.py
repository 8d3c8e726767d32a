"""Waiting for a file that the source writes."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final, Literal

from frtop_tui.cli.diagnose import progress
from frtop_tui.errors import FrtopError, UsageError
from frtop_tui.job.model import Problem, Writing
from frtop_tui.sources.base import Source

STILL_S: Final = 60.0
"""So long without any progress is too long."""


def require_folder(path: Path) -> None:
    """Raises `UsageError` unless `path` can be written: better now than after all the work."""
    folder = path.parent
    if os.path.isdir(path):  # noqa: PTH112 - Path's own raises where a name is too long
        raise UsageError(f"{path} is a folder", f"name a file in it: {path / 'hang.cap'}")
    if not os.path.isdir(folder):  # noqa: PTH112
        raise UsageError(f"there is no folder {folder}", f"mkdir -p {folder}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"{folder} may not be written", "name a file elsewhere, as in /tmp")


def await_writing(
    source: Source, kind: Literal["capture", "tensors"], path: Path, unit: str
) -> Writing:
    """The writing of `path`, when it is done; by then it may have another name.

    Raises:
        FrtopError: it failed, or has got nowhere for long.
    """
    seen: Writing | None = None
    moved = time.monotonic()
    while True:
        frame = source.frame()
        told = next((w for w in frame.writings if w.kind == kind), None)
        if told is not None and told.state == "written":
            return told
        if told is not None and told.state == "failed":
            problem = told.problem or Problem(f"{path} was not written")
            raise FrtopError(problem.text, problem.next or "try once more")
        if told != seen:
            seen, moved = told, time.monotonic()
        if frame.problem is not None and frame.problem.internal:
            raise FrtopError(frame.problem.text, frame.problem.next)
        if time.monotonic() - moved > STILL_S:
            raise FrtopError(
                f"nothing has come for {path} in {STILL_S:.0f} s", "look whether its hosts answer"
            )
        if told is not None:
            progress(f"{told.state}: {told.done:,} of {told.total:,} {unit}")
        time.sleep(0.05)
