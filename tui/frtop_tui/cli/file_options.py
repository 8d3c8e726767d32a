"""Options of the verbs that read and write files; the parsers of `capture` and `export`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from frtop_tui.cli.host_options import add_connection
from frtop_tui.files.formats.table import FORMATS

Run = Callable[[argparse.Namespace], int]


def add_files(verb: argparse.ArgumentParser, count: str, help_text: str) -> None:
    """Args: count: how many, as argparse's `nargs`."""
    verb.add_argument("paths", nargs=count, metavar="PATH", help=help_text)
    verb.add_argument("--ranks-from", metavar="PATTERN",
                      help="where file names contain the rank, if frtop cannot find it: "
                      "'host*_gpu{rank}', 'rank{rank}/trace.json'")  # fmt: skip


def add_capture(verbs: Any, run: Run) -> None:
    capture = verbs.add_parser(
        "capture",
        help="write everything known about a job to one file, for `frtop open`",
        description="Collects everything known, waits up to 10 s for a verdict, and writes a file. "
        "After one ^C it writes what it has by then. The exit status is 0 when the file is "
        "written, whatever the state of the job; `frtop diagnose FILE` reports that.",
    )
    add_connection(capture)
    capture.add_argument("-o", "--output", metavar="FILE",
                         help="the file to write or replace (default: a new frtop-JOB-TIME.cap "
                         "in the current folder)")  # fmt: skip
    _add_redact(capture)
    capture.set_defaults(run=run)


def add_export(verbs: Any, run: Run) -> None:
    export = verbs.add_parser(
        "export",
        help="write a report, a trace, stacks or a table for people and other programs",
        description="Writes what is known of a live job, or what captures, black boxes, dumps and"
        " stacks hold, in a format for people or other programs. The exit status is 0 when it is"
        " written, whatever the state of the job.",
        epilog="formats:\n"
        + "".join(f"  {name:15} {one.summary}\n" for name, one in FORMATS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_connection(export)
    add_files(export, "*", "export these files instead of a live job")
    export.add_argument("--as", dest="form", choices=FORMATS, required=True, metavar="FORMAT",
                        help=f"one of {', '.join(FORMATS)}")  # fmt: skip
    export.add_argument("-o", "--output", metavar="PATH",
                        help="the file or folder to write; - is standard output (default: a new "
                        "frtop-JOB-TIME in the current folder)")  # fmt: skip
    export.add_argument("--force", action="store_true", help="replace an existing file")
    _add_redact(export)
    export.set_defaults(run=run)


def _add_redact(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--redact", action="store_true",
                      help="replace names of hosts, users and paths, values of variables and"
                      " arguments, and data (docs/formats.md lists what stays)"
                      )  # fmt: skip
