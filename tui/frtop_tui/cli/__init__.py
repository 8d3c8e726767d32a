"""The command line: parses and dispatches. Textual is imported only to draw."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from frtop_tui.cli.parser import parse
from frtop_tui.errors import FrtopError

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status (see `frtop diagnose --help`)."""
    try:
        options = parse(sys.argv[1:] if argv is None else argv)
        status: int = options.run(options)
        if sys.stdout is not None:  # closed, as by a daemon
            sys.stdout.flush()
    except FrtopError as error:
        # Not needed by `frtop run`, which stands before every start of a job.
        from frtop_tui.job.naming import printable  # noqa: PLC0415

        message = "\n".join(map(printable, str(error).split("\n")))
        print(f"frtop: {message}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has exited (`frtop diagnose | head`).
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status
