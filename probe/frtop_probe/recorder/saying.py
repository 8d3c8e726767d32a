"""The only way in which the recorder speaks to the terminal."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """One line on stderr."""
    try:
        sys.stderr.write(f"frtop: {text}\n")
    except Exception:  # noqa: BLE001 - the program may have put anything in its place
        return
