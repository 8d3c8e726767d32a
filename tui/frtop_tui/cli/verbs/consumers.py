"""What the verbs share whose output other programs read."""

from __future__ import annotations

import argparse

from frtop_tui.cli.file_options import add_files
from frtop_tui.cli.host_options import add_connection
from frtop_tui.cli.option_values import seconds
from frtop_tui.cli.verbs.parts import Parser, Verbs, command


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


def add_wait(verb: argparse.ArgumentParser) -> None:
    """Adds `--wait`, as the last option."""
    verb.add_argument("--wait", type=seconds, default=10.0, metavar="SECONDS",
                      help="longest time to wait for the job (default 10)")  # fmt: skip
