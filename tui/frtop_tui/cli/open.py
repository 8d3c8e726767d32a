"""`frtop open`: a job as it was, in the same screens; no network, no torch."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from frtop_tui.cli.screen import require_terminal
from frtop_tui.export.flightrecorder.file_names import pattern_of
from frtop_tui.export.loader import open_paths
from frtop_tui.sources.recorded import RecordedSource


def run(options: argparse.Namespace) -> int:
    require_terminal(f"without one: frtop diagnose {shlex.join(options.paths)}")
    paths = [Path(path) for path in options.paths]
    source = RecordedSource(open_paths(paths, options.job, pattern_of(options.ranks_from)))
    from frtop_tui.app import run_app  # noqa: PLC0415 - Textual only when drawing

    return run_app(source)
