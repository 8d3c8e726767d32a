"""Options of the verbs that take files instead of a live job."""

from __future__ import annotations

import argparse

from frtop_tui.cli.host_options import add_connection
from frtop_tui.cli.option_values import seconds
from frtop_tui.cli.verbs.parts import Parser, Verbs, command


def add_files(verb: argparse.ArgumentParser, count: str, help_text: str) -> None:
    """Args: count: how many, as argparse's `nargs`."""
    verb.add_argument("paths", nargs=count, metavar="PATH", help=help_text)
    verb.add_argument("--ranks-from", metavar="PATTERN",
                      help="where file names contain the rank, if frtop cannot find it: "
                      "'host*_gpu{rank}', 'rank{rank}/trace.json'")  # fmt: skip


def add_consumer(
    verbs: Verbs[Parser],
    name: str,
    *,
    summary: str,
    description: str,
    epilog: str | None = None,
) -> argparse.ArgumentParser:
    """A verb of a live job or of files; what runs it is the feature's `command.run`."""
    verb = verbs.add_parser(name, help=summary, description=description, epilog=epilog)
    add_connection(verb)
    add_files(verb, "*", "captures, black boxes, dumps or stacks instead of a live job")
    verb.set_defaults(run=command(f"features.{name}.command"))
    return verb


def add_wait(verb: argparse.ArgumentParser, what: str = "the job") -> None:
    """Adds `--wait`, as the last option."""
    verb.add_argument("--wait", type=seconds, default=10.0, metavar="SECONDS",
                      help=f"longest time to wait for {what} (default 10)")  # fmt: skip
