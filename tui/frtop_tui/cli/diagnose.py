"""`frtop diagnose`: prints the verdict as text or JSON.

On files it needs neither a network nor torch.
"""

from __future__ import annotations

import argparse
import json

from frtop_tui.cli.file_options import open_files
from frtop_tui.cli.live import connected, wait_for_report
from frtop_tui.cli.output import show_progress
from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.naming import printable
from frtop_tui.registry import notes_on
from frtop_tui.text.exit_status import exit_status
from frtop_tui.text.json_document import document
from frtop_tui.text.plain import text


def run(options: argparse.Namespace) -> int:
    frame = open_files(options, explain=options.explain) if options.paths else _live(options)
    known = notes_on(frame)
    if options.json:
        print(json.dumps({**document(frame), **known}, indent=1))
    else:
        notes = [f"note  {printable(line)}" for lines in known.values() for line in lines]
        print("\n".join([*text(frame), *notes]))
    return exit_status(frame)


def _live(options: argparse.Namespace) -> Frame:
    with connected(options, judges=True) as source:
        return wait_for_report(source, options.wait, show_progress)
