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
from frtop_tui.files.flightrecorder.file_names import pattern_of
from frtop_tui.files.loader import open_paths
from frtop_tui.job.naming import printable
from frtop_tui.registry import contributions
from frtop_tui.statistics.wanted import StatisticsWanted
from frtop_tui.text.exit_status import exit_status
from frtop_tui.text.json_document import document
from frtop_tui.text.plain import text


def run(options: argparse.Namespace) -> int:
    frame = _recorded(options) if options.paths else _live(options)
    before = _before(frame)
    if options.json:
        print(json.dumps({**document(frame), "before": before}, indent=1))
    else:
        notes = [f"note  {printable(line)}: `frtop history`" for line in before]
        print("\n".join([*text(frame), *notes]))
    return exit_status(frame)


def _before(frame: Frame) -> list[str]:
    """What features know of the culprits of a live job, such as earlier verdicts."""
    if frame.recorded is not None or not frame.verdicts:
        return []
    return [line for notes in contributions("notes", "NOTES") for line in notes(frame)]


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
    source.want_statistics(StatisticsWanted(), whom="verdicts")
    try:
        return wait_for_report(source, options.wait, show_progress)
    finally:
        source.close()
        show_progress("")
