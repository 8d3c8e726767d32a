"""The parser of the command line. Commands are imported when they run, to start fast."""

from __future__ import annotations

import argparse
import difflib
import os
import shlex
from collections.abc import Sequence
from itertools import chain
from operator import attrgetter
from pathlib import Path

from frtop_tui.cli.host_options import require_one_job, settle_hosts
from frtop_tui.cli.verbs.core import SCREEN, VERBS
from frtop_tui.cli.verbs.parts import Parser, Version
from frtop_tui.errors import UsageError
from frtop_tui.registry import contributions


def parser() -> tuple[argparse.ArgumentParser, tuple[str, ...]]:
    """The parser and its commands, in the order in which they are listed."""
    top = Parser(
        prog="frtop",
        description="Shows why a distributed PyTorch job hangs or is slow: which rank everyone "
        "is waiting for, which collective it has not reached or reaches late, and why.",
        epilog="Without a command: the live screen on this host's newest job.",
    )
    top.add_argument("--version", action=Version, help="show program's version number and exit")
    verbs = top.add_subparsers(metavar="COMMAND", parser_class=Parser)
    found = chain(VERBS, *contributions("verbs", "VERBS"))
    for verb in sorted(found, key=attrgetter("place")):
        verb.add(verbs)
    return top, tuple(verbs.choices)


def _command_meant(word: str, verbs: Sequence[str]) -> str:
    """The next step if the first word is not a command."""
    if Path(word).exists():
        return f"`frtop open {shlex.quote(word)}` shows what was recorded"
    near = difflib.get_close_matches(word, verbs, n=1)
    return f"did you mean `frtop {near[0]}`?" if near else "`frtop --help` lists the commands"


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The options of one command; their `run` is the function to call.

    Raises:
        UsageError: the line is wrong; the message names the nearest valid command.
    """
    top, verbs = parser()
    words = list(argv)
    if not words or (words[0].startswith("-") and words[0] not in ("-h", "--help", "--version")):
        words.insert(0, SCREEN)
    elif words[0] not in verbs and not words[0].startswith("-"):
        raise UsageError(f"unknown command {words[0]!r}", _command_meant(words[0], verbs))
    if words[0] == "key":
        from frtop_tui.cli.key import without_dash  # noqa: PLC0415 - libzmq, for this verb only

        words = [without_dash(word) for word in words]
    options = top.parse_args(words)
    if getattr(options, "settings", False):
        from frtop_tui.cli.settings import fill  # noqa: PLC0415 - not before a job is started

        fill(options, os.environ)
    if hasattr(options, "ssh"):
        settle_hosts(options, verbs)
    require_one_job(options)
    return options
