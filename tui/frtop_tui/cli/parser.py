"""The parser of the command line. Commands are imported when they run, to start fast."""

from __future__ import annotations

import argparse
import difflib
import os
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain, groupby
from operator import attrgetter
from typing import Final

from frtop_tui.cli.host_options import (
    explain_connection,
    refuse_files,
    require_one_job,
    settle_hosts,
)
from frtop_tui.cli.verbs.core import LIVE, VERBS
from frtop_tui.cli.verbs.parts import TITLES, Help, Parser, Verbs, Version
from frtop_tui.errors import UsageError
from frtop_tui.registry import contributions

EXAMPLES: Final = """
  frtop                            the live screen, on this host's newest job
  frtop --ssh 'node[0-7]'          the same for a job on other hosts
  frtop diagnose /path/to/dumps    what files of a job that hung say
"""
SYNONYMS: Final = {
    "jobs": ("ls", "ps", "list", "top"),
    "diagnose": ("status", "why"),
    "stacks": ("dump", "bt"),
    "export": ("trace", "report"),
}
"""What other programs call our commands."""


def parser() -> tuple[Parser, Verbs[Parser]]:
    """The parser, and its commands in the order in which they are listed."""
    top = Parser(
        prog="frtop",
        usage="frtop [COMMAND] [OPTION ...]",
        description="Shows why a distributed PyTorch job hangs or is slow: which rank everyone "
        "waits for, which collective it has not reached or reaches late, and why.\n" + EXAMPLES,
        epilog="`frtop COMMAND --help` or `frtop help COMMAND` says more about a command.",
        formatter_class=partial(Help, max_help_position=22),
    )
    top.add_argument("-V", "--version", action=Version, help="print the version of frtop")
    explain_connection(top)
    verbs = top.add_subparsers(
        prog="frtop", metavar="COMMAND", parser_class=Parser, help=argparse.SUPPRESS
    )
    found = sorted(chain(VERBS, *contributions("verbs", "VERBS")), key=attrgetter("place"))
    for tens, members in groupby(found, lambda verb: verb.place // 10):
        listed = len(verbs.choices)
        for verb in members:
            verb.add(verbs)
        # argparse lists all commands under one title.
        group = top.add_argument_group(TITLES[tens])
        group._group_actions.extend(verbs._choices_actions[listed:])  # noqa: SLF001
    return top, verbs


def _command_meant(word: str, verbs: Sequence[str]) -> str:
    """The next step if the first word is not a command."""
    if os.path.exists(word):  # noqa: PTH110 - unlike Path.exists, false for a name too long
        return f"`frtop open {shlex.quote(word)}` shows what was recorded"
    near = [verb for verb, names in SYNONYMS.items() if word in names]
    near = near or difflib.get_close_matches(word, verbs, n=1)
    return f"did you mean `frtop {near[0]}`?" if near else "`frtop --help` lists the commands"


def command_at(words: Sequence[str], verbs: Mapping[str, Parser]) -> int | None:
    """Where the command is: options may stand before it, and their values may look like one."""
    options = verbs[LIVE]._option_string_actions  # noqa: SLF001
    for place, word in enumerate(words):
        before = options.get(words[place - 1]) if place else None
        if word in verbs and (before is None or before.nargs == 0):
            return place
    return None


def _command_first(words: Sequence[str], verbs: Mapping[str, Parser]) -> list[str]:
    """The command, its own words, then the options that stood before it.

    These go last because `--ssh node0` would take a file behind it for a host.
    """
    place = command_at(words, verbs)
    if place is None:
        return [LIVE, *words]
    own = list(words[place + 1 :])
    end = own.index("--") if "--" in own else len(own)
    return [words[place], *own[:end], *words[:place], *own[end:]]


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The options of one command; their `run` is the function to call.

    Raises:
        UsageError: the line is wrong; the message names the nearest valid command.
    """
    top, verbs = parser()
    words = list(argv)
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    if words and not words[0].startswith("-") and words[0] not in verbs.choices:
        found = _command_meant(words[0], list(verbs.choices))
        raise UsageError(f"unknown command {words[0]!r}", found)
    if not words or words[0] not in ("-h", "--help", "-V", "--version"):
        words = _command_first(words, verbs.choices)
    if words[0] == "key":
        from frtop_tui.cli.key import without_dash  # noqa: PLC0415 - libzmq, for this verb only

        words = [without_dash(word) for word in words]
    options = top.parse_args(words)
    refuse_files(options)
    if getattr(options, "settings", False):
        from frtop_tui.cli.settings import fill  # noqa: PLC0415 - not before a job is started

        fill(options, os.environ)
    if hasattr(options, "ssh"):
        settle_hosts(options)
    require_one_job(options)
    return options
