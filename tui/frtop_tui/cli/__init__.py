"""The command line: parses and dispatches. Textual is imported only to draw."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from frtop_tui.cli import output
from frtop_tui.cli.parser import parse
from frtop_tui.errors import FrtopError

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status (see `frtop diagnose --help`)."""
    if "_ARGCOMPLETE" in os.environ:  # a shell asks what may follow
        from frtop_tui.cli.completion import complete  # noqa: PLC0415 - only then

        complete()
    output.prepare()
    try:
        status = _run(sys.argv[1:] if argv is None else argv)
        output.flush()
    except OSError as error:
        if not output.is_lost(error):
            raise
        return output.give_up(error)
    return status


def _run(words: Sequence[str]) -> int:
    try:
        options = parse(words)
        try:
            status: int = options.run(options)
        finally:
            output.end_progress()
    except FrtopError as error:
        # Not needed by `frtop run`, which precedes every start of a job.
        from frtop_tui.job.naming import printable  # noqa: PLC0415

        message = "\n".join(map(printable, str(error).split("\n")))
        print(f"frtop: {message}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as ended:  # argparse, after `--help` and `--version`
        return ended.code if isinstance(ended.code, int) else 0
    return status
