"""The content of a profile's file, which may come from anywhere: its size is bounded."""

from __future__ import annotations

import gzip
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from frtop_probe import archive
from frtop_tui.errors import Unreadable

MOST_BYTES: Final = 1 << 30
"""Largest file without compression: some three million events."""
_PIECE: Final = 1 << 22


def file_content(path: Path) -> bytes:
    """All of it, decompressed if necessary.

    Raises:
        Unreadable: it is too large, or not a regular file.
        OSError: it cannot be read.
        EOFError: it is compressed, and its end is missing.
        zlib.error: it is damaged.
    """
    pieces: list[bytes] = []
    size = 0
    with opened(path) as file:
        while piece := file.read(_PIECE):
            size += len(piece)
            if size > MOST_BYTES:
                text = f"{path} has more than {MOST_BYTES >> 30} GiB of events"
                raise Unreadable(text, "profile fewer ranks or steps at once")
            pieces.append(piece)
    return b"".join(pieces)


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """A file with the content, decompressed if necessary.

    Raises:
        Unreadable: it is not a regular file.
        OSError: it cannot be read.
    """
    with archive.open_file(path) as raw:
        if not stat.S_ISREG(os.fstat(raw.fileno()).st_mode):
            raise Unreadable(f"{path} is not a regular file", "name a profile")
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        with gzip.open(raw) if packed else raw as file:
            yield file
