"""The file format of captures and black boxes: compressed msgpack, written atomically.

    magic     8 bytes  `FRTOPAR1`
    kind      8 bytes  what the content is, padded with spaces
    content   zlib

Decompression is bounded, because a small file may expand without end.
"""

from __future__ import annotations

import os
import stat
import zlib
from io import BufferedReader
from pathlib import Path
from typing import Final

from frtop_probe import atomic_file

MAGIC: Final = b"FRTOPAR1"
MAX_CONTENT: Final = 2 * 1024**3
"""Bytes of decompressed content; 16,384 ranks with their histories need less."""
MAX_UNCHECKED: Final = 64 * 1024 * 1024
MAX_RATIO: Final = 50
"""Content above `MAX_UNCHECKED` bytes may be at most 50 times as large as its file; real
archives are 2 to 10 times as large."""
_KIND: Final = 8
_HEAD: Final = len(MAGIC) + _KIND
_LEVEL: Final = 1
"""Repetitions lie within a few hundred bytes: higher levels take ten times as long and save
a tenth of the size."""
_READ: Final = 1024 * 1024


class ArchiveError(Exception):
    """The file is no archive of this kind, or damaged; the text says which."""


def write(path: Path, kind: str, content: bytes, *, overwrite: bool = True) -> int:
    """Writes an archive in one step, with mode 0600; returns its size in bytes.

    Raises:
        FileExistsError: the file exists, and `overwrite` is false.
        OSError: it cannot be written; an existing file is unchanged.
    """
    data = MAGIC + kind.encode().ljust(_KIND) + zlib.compress(content, _LEVEL)
    atomic_file.write(path, data, overwrite=overwrite)
    return len(data)


def kind_of(path: Path) -> str:
    """The kind of an archive; "" for any other file.

    Raises:
        OSError: it cannot be read.
    """
    with open_file(path) as file:
        head = file.read(_HEAD) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
    if len(head) != _HEAD or not head.startswith(MAGIC):
        return ""
    return head[len(MAGIC) :].decode("ascii", "replace").rstrip()


def open_file(path: Path) -> BufferedReader:
    """Opens a file for reading, without waiting for the writer of a fifo.

    Raises:
        OSError: it is a folder, or cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return os.fdopen(descriptor, "rb")
    except OSError:  # a folder
        os.close(descriptor)
        raise


def read(path: Path, kind: str) -> bytes:
    """The content of an archive of this kind.

    Raises:
        ArchiveError: the file is of another kind, truncated, damaged or too large.
        OSError: it cannot be read.
    """
    if (found := kind_of(path)) != kind:
        raise ArchiveError(f"{path.name} is no {kind} of frtop{f' but a {found}' * bool(found)}")
    stream = zlib.decompressobj()
    parts: list[bytes] = []
    size = 0
    with open_file(path) as file:
        file_size = os.fstat(file.fileno()).st_size
        limit = min(MAX_CONTENT, max(MAX_UNCHECKED, MAX_RATIO * file_size))
        file.seek(_HEAD)
        try:
            # Bytes after the end of the stream are not read: they would stay in memory.
            while not stream.eof and (data := stream.unconsumed_tail or file.read(_READ)):
                parts.append(stream.decompress(data, _READ * 16))
                size += len(parts[-1])
                if size > limit:
                    raise ArchiveError(f"{path.name} unpacks to more than {limit} bytes")
        except zlib.error as error:
            raise ArchiveError(f"{path.name} is damaged ({error})") from error
    if not stream.eof:
        raise ArchiveError(f"{path.name} is truncated: {size} bytes of it could be unpacked")
    return b"".join(parts)
