"""Reads files that others wrote: only regular ones, and only up to a limit; says how far it is.

A fifo would block, a device would never end, and a huge file would fill the memory.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from frtop_probe import archive
from frtop_tui.errors import Unreadable
from frtop_tui.job.units import byte_size

Progress = Callable[[str], None]
"""Takes a line that says what is being done; it replaces the line before."""
_HEAD: Final = 64


def quietly(_line: str) -> None:
    """Shows no progress."""


def announced(paths: Sequence[Path], what: str, progress: Progress) -> Iterator[Path]:
    """The paths; says before each how far the reading is: `reading dumps: 3 of 64, 12 of 60 MB`."""
    sizes = list(map(_size, paths))
    done, of_all = 0, f"of {byte_size(sum(sizes))}"
    for number, (path, size) in enumerate(zip(paths, sizes, strict=True), 1):
        progress(f"reading {what}: {number:,} of {len(paths):,}, {byte_size(done)} {of_all}")
        yield path
        done += size


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def read_head(path: Path, size: int = _HEAD) -> bytes:
    """The first `size` bytes of a file; b"" if it is not a regular file.

    Raises:
        OSError: it cannot be read.
    """
    with archive.open_file(path) as file:
        return file.read(size) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""


def read_bounded(path: Path, limit: Callable[[bytes], int], kind: str, next_step: str) -> bytes:
    """The content of a file; `limit` returns the largest allowed size for its first bytes.

    `kind` ("a dump") and `next_step` are for the error.

    Raises:
        Unreadable: it cannot be read, is not a regular file, or is larger than allowed.
    """
    try:
        with archive.open_file(path) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise Unreadable(f"{path} is not a regular file", next_step)
            most = limit(file.peek(_HEAD))
            data = file.read(min(status.st_size, most) + 1)  # allocates this much at once
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}", next_step) from error
    if len(data) > most:
        raise Unreadable(f"{path} is larger than {kind} may be ({most // 1_000_000} MB)", next_step)
    return data
