"""The commands with a screen: `frtop` shows a live job, `frtop open` a recorded one."""

from __future__ import annotations

import argparse
import io
import os
import shlex
import sys
from typing import Any

from frtop_tui.cli.file_options import open_files
from frtop_tui.cli.live import connect
from frtop_tui.cli.output import show_progress
from frtop_tui.cli.settings import folder_of
from frtop_tui.errors import UsageError
from frtop_tui.terminal import moves_cursor


def require_terminal(without: str) -> None:
    """Raises `UsageError` unless stdin, stdout and stderr are terminals: Textual needs all."""
    if not (sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()):
        raise UsageError(
            "the screen needs a terminal, not a pipe or a file",
            f"without a terminal: {without}; over ssh: ssh -t host frtop",
        )
    if not moves_cursor():
        raise UsageError(
            f"the screen cannot be drawn on this terminal (TERM={os.environ['TERM']})",
            f"{without}; if it can move its cursor: TERM=xterm-256color frtop",
        )
    terminal = sys.__stderr__  # to which Textual writes
    if isinstance(terminal, io.TextIOWrapper):
        terminal.reconfigure(errors="replace")  # a letter that it lacks keeps its one cell
    if 0 in os.get_terminal_size(sys.stderr.fileno()):
        # Without a size, Textual and Rich assume different ones, and draw without end.
        os.environ.setdefault("COLUMNS", "80")
        os.environ.setdefault("LINES", "24")


def run(options: argparse.Namespace) -> int:
    """`frtop`."""
    require_terminal("frtop diagnose")
    from frtop_tui.app import run_app  # noqa: PLC0415 - Textual only when drawing

    return run_app(connect(options), **_look(options))


def run_open(options: argparse.Namespace) -> int:
    """`frtop open`: needs no network and no torch."""
    require_terminal(f"frtop diagnose {shlex.join(options.paths)}")
    from frtop_tui.connect.recorded import RecordedSource  # noqa: PLC0415

    source = RecordedSource(open_files(options))
    show_progress("opening the screen")
    from frtop_tui.app import run_app  # noqa: PLC0415 - Textual only when drawing

    show_progress("")
    return run_app(source, **_look(options))


def _look(options: argparse.Namespace) -> dict[str, Any]:
    """What the settings say about the screens."""
    from frtop_tui.screens.base import Preferences  # noqa: PLC0415 - Textual only when drawing

    return {
        "auto_capture": options.auto_capture,
        "theme": options.theme,
        "preferences": Preferences(options.window, folder_of(options)),
    }
