"""Small files of /proc and /sys, the forms that several of them have, and texts of others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

LONGEST: Final = 64 * 1024
_DIGITS: Final = 20


def read_text(path: Path | str, most: int = LONGEST) -> str:
    """The first bytes of a file as text; "" where there is no file, or it is not readable."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return ""
    try:
        data = b""
        while len(data) < most and (chunk := os.read(descriptor, most - len(data))):
            data += chunk
        return data.decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def number(text: str) -> int | None:
    """A whole number from 0 on; None of anything else."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < _DIGITS else None


def read_number(path: Path | str) -> int | None:
    """The number that is all of a file."""
    return number(read_text(path, 64))


def named_numbers(text: str) -> dict[str, int]:
    """Lines of a name and a number, as `oom_kill 3` or `MemFree: 12 kB`."""
    found = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 2 and (value := number(words[1])) is not None:
            found[words[0].removesuffix(":")] = value
    return found


def printable(text: str, most: int = 200) -> str:
    """One line of a text, without what a terminal would obey."""
    return "".join(c if c.isprintable() else " " for c in text[:most])


def names_in(folder: Path | str, most: int = 256) -> list[str]:
    """Names of a folder's entries in order; [] where there is none."""
    try:
        return sorted(os.listdir(folder))[:most]  # noqa: PTH208 - names only
    except OSError:
        return []
