"""Files that commands write: checks, progress, and the lines at the end."""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path
from typing import Final, Literal

from frtop_tui.cli.output import show_progress
from frtop_tui.connect.source import Source
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import FrtopError, UsageError
from frtop_tui.job.coverage import coverage_text
from frtop_tui.job.model import Problem, Writing
from frtop_tui.job.naming import printable
from frtop_tui.job.units import byte_size

NO_PROGRESS_S: Final = 60.0
"""A file without progress for this long has failed."""


def require_writable(path: Path) -> None:
    """Raises `UsageError` unless `path` can be written: checked before any work is done."""
    folder = path.parent
    if os.path.isdir(path):  # noqa: PTH112 - Path's own raises where a name is too long
        raise UsageError(f"{path} is a folder", f"name a file in it: {path / 'hang.cap'}")
    if not os.path.isdir(folder):  # noqa: PTH112
        raise UsageError(f"there is no folder {folder}", f"mkdir -p {shlex.quote(str(folder))}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"{folder} is not writable", "name a file elsewhere, such as in /tmp")


def say_written(path: Path | str, size: int, missing: str, frame: Frame) -> None:
    """Prints the path and size of a file, what it lacks, and whose data it lacks."""
    print(f"{path}  {byte_size(size)}")
    if missing:
        print(f"missing: {printable(missing)}")
    if not frame.coverage.complete:
        print(coverage_text(frame.coverage))


def wait_for_file(
    source: Source, kind: Literal["capture", "tensors", "export"], path: Path, unit: str
) -> Writing:
    """The finished file; its name may differ from `path`.

    Raises:
        FrtopError: it failed, or made no progress for `NO_PROGRESS_S` seconds.
    """
    last: Writing | None = None
    changed = time.monotonic()
    while True:
        frame = source.frame()
        writing = next((w for w in frame.writings if w.kind == kind), None)
        if writing is not None and writing.state == "written":
            return writing
        if writing is not None and writing.state == "failed":
            problem = writing.problem or Problem(f"{path} was not written")
            raise FrtopError(problem.text, problem.next or "try again")
        if writing != last:
            last, changed = writing, time.monotonic()
        if frame.problem is not None and frame.problem.internal:
            raise FrtopError(frame.problem.text, frame.problem.next)
        if time.monotonic() - changed > NO_PROGRESS_S:
            raise FrtopError(
                f"no data for {path} in {NO_PROGRESS_S:.0f} s", "check that its hosts answer"
            )
        if writing is not None:
            show_progress(f"{writing.state}: {writing.done:,} of {writing.total:,} {unit}")
        time.sleep(0.05)
