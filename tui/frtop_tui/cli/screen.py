"""`frtop`: the live screen."""

from __future__ import annotations

import argparse
import sys

from frtop_tui.cli.connecting import connect
from frtop_tui.errors import UsageError


def require_terminal(next_step: str) -> None:
    """Raises `UsageError` unless a screen can be drawn: Textual writes to stderr."""
    if not (sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()):
        raise UsageError("the screen needs a terminal, not a pipe or a file", next_step)


def run(options: argparse.Namespace) -> int:
    require_terminal("without one: frtop diagnose; over ssh: ssh -t host frtop")
    from frtop_tui.app import run_app  # noqa: PLC0415 - Textual only when drawing

    return run_app(connect(options))
