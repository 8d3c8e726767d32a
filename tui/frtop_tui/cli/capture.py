"""`frtop capture`: writes everything known about a job to one file."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Final

from frtop_tui.cli.files import require_writable, say_written, wait_for_file
from frtop_tui.cli.live import connected, require_ranks, wait_for_ranks
from frtop_tui.cli.output import show_progress
from frtop_tui.cli.settings import folder_of
from frtop_tui.connect.source import Source
from frtop_tui.files.output_path import default_path
from frtop_tui.job.naming import printable

VERDICT_S: Final = 10.0
"""How long to wait for all ranks, and then for a verdict. Without one, a capture is still worth it:
evidence does not last."""


def run(options: argparse.Namespace) -> int:
    """Returns 0 when the file is written, whatever the state of the job."""
    path = Path(options.output) if options.output else None
    if path is not None:
        require_writable(path)
    with connected(options, judges=True) as source:
        return capture(source, path, redact=options.redact, folder=folder_of(options))


def capture(
    source: Source,
    path: Path | None,
    wait_s: float = VERDICT_S,
    *,
    redact: bool = False,
    folder: Path | None = None,
) -> int:
    """Collects while the verdict settles, writes the capture, and prints its path and the verdict.

    After one interrupt it writes what has arrived.

    Raises:
        FrtopError: there is no job, or the file could not be written.
    """
    frame = wait_for_ranks(source, wait_s, show_progress)
    require_ranks(frame)
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
    frame = source.frame()
    say_written(writing.path, writing.size, str(writing.problem or ""), frame)
    headlines = [printable(verdict.headline) for verdict in frame.verdicts]
    print("\n".join(headlines or [f"{frame.health}: no verdict"]))
    return 0
