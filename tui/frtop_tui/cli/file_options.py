"""Verbs that take files instead of a live job: their options, and the job in the files."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from frtop_tui.cli.option_values import seconds
from frtop_tui.cli.output import show_progress
from frtop_tui.cli.verbs.parts import Parser, Verbs, command

if TYPE_CHECKING:
    from frtop_tui.diagnosis.model import Frame


def add_files(verb: argparse.ArgumentParser, count: str, help_text: str) -> None:
    verb.add_argument("paths", nargs=count, metavar="PATH", help=help_text)
    verb.add_argument("--ranks-from", metavar="PATTERN",
                      help="where file names contain the rank, if frtop cannot find it: "
                      "'host*_gpu{rank}', 'rank{rank}/trace.json'")  # fmt: skip


def open_files(options: argparse.Namespace, *, explain: bool = False) -> Frame:
    """The job in the named files; `explain`: with the way to its verdict.

    Raises:
        UsageError: the pattern of `--ranks-from` is invalid.
        Unreadable: no file can be read, or none holds that job.
    """
    from frtop_tui.files.flightrecorder.file_names import pattern_of  # noqa: PLC0415 - slow
    from frtop_tui.files.loader import open_paths  # noqa: PLC0415

    paths, pattern = [Path(path) for path in options.paths], pattern_of(options.ranks_from)
    frame = open_paths(paths, options.job, pattern, explain=explain, progress=show_progress)
    show_progress("")
    return frame


def add_consumer(
    verbs: Verbs[Parser],
    name: str,
    *,
    summary: str,
    description: str,
    epilog: str | None = None,
) -> argparse.ArgumentParser:
    """A verb for a live job or files; the feature's `command.run` runs it."""
    verb = verbs.add_parser(name, help=summary, description=description, epilog=epilog)
    add_files(verb, "*", "captures, black boxes, dumps or stacks instead of a live job")
    verb.set_defaults(run=command(f"features.{name}.command"))
    return verb


def add_wait(verb: argparse.ArgumentParser, what: str = "the job") -> None:
    """Adds `--wait`, as the last option."""
    verb.add_argument("--wait", type=seconds, default=10.0, metavar="SECONDS",
                      help=f"longest time to wait for {what} (default 10)")  # fmt: skip
