"""Reads small files of /proc and /sys in their common formats; cleans text from other programs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

LONGEST: Final = 64 * 1024
_DIGITS: Final = 20


def read_text(path: Path | str, most: int = LONGEST) -> str:
    """The first bytes of a file as text; "" if it is not readable."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return ""
    try:
        parts, left = [], most
        while left and (part := os.read(descriptor, min(left, LONGEST))):
            parts.append(part)
            left -= len(part)
        return b"".join(parts).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def number(text: str) -> int | None:
    """Parses a non-negative whole number; None for anything else."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < _DIGITS else None


def read_number(path: Path | str) -> int | None:
    """Returns the number in a file; None if the file has anything else."""
    return number(read_text(path, 64))


def named_numbers(text: str) -> dict[str, int]:
    """Parses lines of a name and a number, such as `oom_kill 3` or `MemFree: 12 kB`."""
    found = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 2 and (value := number(words[1])) is not None:
            found[words[0].removesuffix(":")] = value
    return found


def printable(text: str, most: int = 200) -> str:
    """Returns a text as one line, without control characters of terminals."""
    return "".join(c if c.isprintable() else " " for c in text[:most])


def read_fields(path: Path | str) -> dict[str, str]:
    """The values of a file with lines such as `TracerPid: 0`, by name; {} if it is not readable."""
    parts = (line.partition(":") for line in read_text(path).splitlines())
    return {name: value.strip() for name, colon, value in parts if colon}


def names_in(folder: Path | str) -> list[str]:
    """The names of the first 256 entries of a folder, sorted; [] if there is no such folder."""
    try:
        return sorted(os.listdir(folder))[:256]  # noqa: PTH208 - names only
    except OSError:
        return []
