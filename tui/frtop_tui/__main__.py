"""The program: `frtop`, or `python -m frtop_tui`."""

from __future__ import annotations

import sys


def run() -> None:
    """Runs the command line; exits even if a thread still reads a closed terminal."""
    try:  # ^C may come while all of this is loaded, and is no error
        from frtop_tui.cli import main  # noqa: PLC0415
        from frtop_tui.terminal import end  # noqa: PLC0415

        status = end(main())
    except KeyboardInterrupt:
        status = 130  # as `cli.INTERRUPTED`, which may not be loaded
    sys.exit(status)


if __name__ == "__main__":
    run()
