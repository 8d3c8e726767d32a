"""`frtop`: the live screen."""

from __future__ import annotations

import argparse
import sys

from frtop_tui.errors import UsageError
from frtop_tui.sources.live import LiveSource


def run(options: argparse.Namespace) -> int:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "the screen needs a terminal", "without one: frtop diagnose, or ssh -t host frtop"
        )
    from frtop_tui.app import run_app  # noqa: PLC0415 - Textual only when drawing

    return run_app(LiveSource(options.connect, options.job))
