"""`frtop diagnose`: prints the verdict as text or JSON.

On files it needs neither a network nor torch.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from frtop_tui.cli.live import connect, show_progress, wait_for_report
from frtop_tui.diagnosis.model import Frame
from frtop_tui.errors import UsageError
from frtop_tui.export.flightrecorder.file_names import pattern_of
from frtop_tui.export.loader import open_paths
from frtop_tui.report.document import document
from frtop_tui.report.exit_status import exit_status
from frtop_tui.report.text import text


def run(options: argparse.Namespace) -> int:
    frame = _recorded(options) if options.paths else _live(options)
    if options.json:
        print(json.dumps(document(frame), indent=1))
    else:
        print("\n".join([*text(frame), *_history(frame)]))
    return exit_status(frame)


def _history(frame: Frame) -> list[str]:
    if frame.recorded is not None:
        return []
    from frtop_tui.cli.history import history_lines  # noqa: PLC0415 - SQLite, for live jobs only

    return history_lines(frame)


def _recorded(options: argparse.Namespace) -> Frame:
    if options.connect != ["local"]:
        raise UsageError(
            "diagnose takes either files or hosts",
            "leave out --connect and --ssh to read files, or the files to diagnose a live job",
        )
    paths = [Path(path) for path in options.paths]
    return open_paths(paths, options.job, pattern_of(options.ranks_from), explain=options.explain)


def _live(options: argparse.Namespace) -> Frame:
    source = connect(options)
    try:
        return wait_for_report(source, options.wait, show_progress)
    finally:
        source.close()
        show_progress("")
