"""The file format of captures and black boxes: msgpack in gzip, written atomically.

A gzip file whose header has one extra field, so that `zcat` and Python's `gzip` open it:

    gzip      16 bytes  header up to the extra field `FR`, always the same
    magic      8 bytes  `FRTOPAR1`: frtop's archives, version 1
    kind       8 bytes  what the content is, padded with spaces
    content             deflate, then gzip's CRC-32 and length

Reading bounds the decompressed size, because a small file may expand without end.
"""

from __future__ import annotations

import os
import stat
import struct
import zlib
from io import BufferedReader
from pathlib import Path
from typing import Final

from frtop_probe import atomic_file

MAGIC: Final = bytes.fromhex("1f8b0804 00000000 04ff 1400") + b"FR\x10\0" + b"FRTOPAR1"
"""gzip, deflate, one extra field, no time, fastest, no operating system; the field `FR`.

The last byte is the version."""
MAX_CONTENT: Final = 2 * 1024**3
"""Bytes of decompressed content; 16,384 ranks with their histories need less."""
MAX_UNCHECKED: Final = 64 * 1024 * 1024
MAX_RATIO: Final = 50
"""Content above `MAX_UNCHECKED` bytes may be at most 50 times as large as its file; real
archives are 2 to 10 times as large."""
_KIND: Final = 8
_HEAD: Final = len(MAGIC) + _KIND
_GZIP: Final = 16 + zlib.MAX_WBITS
_LEVEL: Final = 1
"""Repetitions are a few hundred bytes apart: higher levels take ten times as long and save a tenth
of the size."""
_READ: Final = 1024 * 1024


class ArchiveError(Exception):
    """The file is not an archive of this kind, or is damaged; the text says which."""


class UnknownVersion(ArchiveError):
    """The archive has a version that this frtop cannot read."""


def write(path: Path, kind: str, content: bytes, *, overwrite: bool = True) -> int:
    """Writes an archive in one step, with mode 0600; returns its size in bytes.

    Raises:
        FileExistsError: the file exists, and `overwrite` is false.
        OSError: it cannot be written; an existing file is unchanged.
    """
    deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    end = struct.pack("<II", zlib.crc32(content), len(content) & 0xFFFFFFFF)
    head = MAGIC + kind.encode().ljust(_KIND)
    data = b"".join((head, deflate.compress(content), deflate.flush(), end))
    atomic_file.write(path, data, overwrite=overwrite)
    return len(data)


def kind_of(path: Path) -> str:
    """The kind of an archive of any version; "" for any other file.

    Raises:
        OSError: it cannot be read.
    """
    with open_file(path) as file:
        head = file.read(_HEAD) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
    if not _is_archive(head):
        return ""
    return head[len(MAGIC) :].decode("ascii", "replace").rstrip()


def _is_archive(head: bytes) -> bool:
    """Whether these are the first bytes of an archive of any version."""
    return len(head) == _HEAD and head.startswith(MAGIC[:-1])


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
        UnknownVersion: the file is of another version.
        ArchiveError: it is of another kind, truncated, damaged or too large.
        OSError: it cannot be read.
    """
    if (found := kind_of(path)) != kind:
        raise ArchiveError(f"{path.name} is no {kind} of frtop{f' but a {found}' * bool(found)}")
    parts: list[bytes] = []
    size = 0
    with open_file(path) as file:
        file_size = os.fstat(file.fileno()).st_size
        limit = min(MAX_CONTENT, max(MAX_UNCHECKED, MAX_RATIO * file_size))
        magic = file.read(len(MAGIC))
        if magic != MAGIC:
            raise UnknownVersion(
                f"{path.name} is a {kind} in version {magic[-1:].decode('ascii', 'replace')} of"
                f" frtop's file format (this frtop reads version {MAGIC[-1:].decode()})"
            )
        file.seek(0)
        stream = zlib.decompressobj(_GZIP)
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
        raise ArchiveError(f"{path.name} is truncated: only {size} bytes could be unpacked")
    return b"".join(parts)
