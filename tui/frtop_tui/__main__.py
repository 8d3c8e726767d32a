"""The program: `frtop`, or `python -m frtop_tui`."""

from __future__ import annotations

import sys
from typing import NoReturn

from frtop_tui.cli import main
from frtop_tui.terminal import end


def run() -> NoReturn:
    """Runs the command line, and ends even where a lost terminal's thread would not."""
    sys.exit(end(main()))


if __name__ == "__main__":
    run()
