"""`frtop completion`: the script of a shell, which asks frtop at each tab what may follow."""

from __future__ import annotations

import argparse
import os
import shlex
from typing import Any, Final

import argcomplete
from argcomplete.lexers import split_line
from argcomplete.shell_integration import shellcode

from frtop_tui.cli.host_options import CONNECTION
from frtop_tui.cli.parser import command_at, parser

PATHS: Final = ("PATH", "FILE", "FOLDER", "DIR", "BEFORE", "AFTER", "COMMAND")
"""What values are called that are files, folders, or a command line with such words."""


def run(options: argparse.Namespace) -> int:
    """`frtop completion`."""
    # Without the shell's own defaults: it would offer files where hosts are meant.
    print(shellcode(["frtop"], use_defaults=False, shell=options.shell))
    return 0


def complete() -> None:
    """Answers a shell, which asks by variables and reads descriptor 8; then exits."""
    top, verbs = parser()
    for verb in (top, *verbs.choices.values()):
        for action in verb._actions:  # noqa: SLF001 - as argcomplete does
            if action.help == argparse.SUPPRESS and action.option_strings:
                action.help = CONNECTION[action.option_strings[0]]["help"]
            names_files = action.metavar is None or any(one in action.metavar for one in PATHS)
            if action.choices is None and not names_files:
                action.completer = _nothing  # type: ignore[attr-defined]
    line, cursor = os.environ["COMP_LINE"], int(os.environ["COMP_POINT"])
    quote, begun, _, words, _ = split_line(line, cursor)
    place = command_at(words[1:], verbs.choices)
    if place:  # options before the command say nothing about what may follow it
        line = f"{shlex.join([words[0], *words[place + 1 :]])} {quote}{begun}"
        os.environ |= {"COMP_LINE": line, "COMP_POINT": str(len(line))}
    argcomplete.autocomplete(top, always_complete_options=False)


def _nothing(**_: Any) -> tuple[str, ...]:
    return ()
