"""The program: `frtop`, or `python -m frtop_tui`."""

from __future__ import annotations

import sys
from typing import NoReturn

from frtop_tui.cli import main
from frtop_tui.terminal import end


def run() -> NoReturn:
    """Runs the command line; exits even if a thread still reads a closed terminal."""
    sys.exit(end(main()))


if __name__ == "__main__":
    run()
