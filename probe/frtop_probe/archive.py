"""The file format of captures and black boxes: msgpack in gzip, written atomically.

A gzip file whose header has one extra field, so that `zcat` and Python's `gzip` open it:

    gzip      16 bytes  header up to the extra field `FR`, always the same
    magic      8 bytes  `FRTOPAR2`
    kind       8 bytes  what the content is, padded with spaces
    content             deflate, then gzip's CRC-32 and length

Early builds wrote `FRTOPAR1`, the kind, and zlib; these files stay readable. Reading bounds
the decompressed size: a small file may claim to be endless.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import struct
import zlib
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import Final

FIRST_MAGIC: Final = b"FRTOPAR1"
MAGIC: Final = bytes.fromhex("1f8b0804 00000000 04ff 1400") + b"FR\x10\0" + b"FRTOPAR2"
"""gzip, deflate, one extra field, no time, fastest, no operating system; the field `FR`."""
MAX_CONTENT: Final = 2 * 1024**3
"""Bytes of decompressed content; 16,384 ranks with their histories are below it."""
FREE: Final = 64 * 1024 * 1024
RATIO: Final = 50
"""What unpacks to more than `FREE` bytes must be more than a 50th of that as a file: ours
shrink to a half or a tenth."""
_KIND: Final = 8
_HEAD: Final = len(MAGIC) + _KIND
_GZIP: Final = 16 + zlib.MAX_WBITS
_LEVEL: Final = 1
"""What repeats here repeats within a few hundred bytes: higher levels cost ten times the
time for a tenth of the size."""
_READ: Final = 1024 * 1024
_NO_LINKS: Final = frozenset(
    (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EACCES)
)


class ArchiveError(Exception):
    """The file is none of ours, or damaged; the text says which."""


def write(path: Path, kind: str, content: bytes, *, over: bool = True) -> int:
    """Puts the file in place in one step, readable by this user only; gives its size.

    Raises:
        FileExistsError: there is one already, and it is not to be replaced (`over`).
        OSError: it cannot be written; whatever was at `path` is untouched then.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    end = struct.pack("<II", zlib.crc32(content), len(content) & 0xFFFFFFFF)
    head = MAGIC + kind.encode().ljust(_KIND)
    data = b"".join((head, deflate.compress(content), deflate.flush(), end))
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        put(draft, path, over=over)
    finally:
        with suppress(OSError):
            draft.unlink()
    return len(data)


def put(draft: Path, path: Path, *, over: bool) -> None:
    """Gives a finished file its name, in one step; with `over` in place of what is there.

    Raises:
        FileExistsError: without `over`, when there is anything, be it a link to nowhere.
        OSError: it cannot be done; `draft` is still there then.
    """
    if not over:
        try:
            os.link(draft, path)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            if os.path.lexists(path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from error
        else:
            draft.unlink()
            return
    draft.replace(path)


def kind_of(path: Path) -> str:
    """The kind of an archive, "" for any other file.

    Raises:
        OSError: it cannot be read.
    """
    with opened(path) as file:
        head = file.read(_HEAD) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
    for magic in (MAGIC, FIRST_MAGIC):
        kind = head[len(magic) :][:_KIND]
        if head.startswith(magic) and len(kind) == _KIND:
            return kind.decode("ascii", "replace").rstrip()
    return ""


def opened(path: Path) -> BufferedReader:
    """A file to read. A fifo in its place, left by others, must not keep us waiting.

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
    """The content of an archive of that kind.

    Raises:
        ArchiveError: of another kind, truncated, damaged, or larger than anything we write.
        OSError: it cannot be read.
    """
    if (found := kind_of(path)) != kind:
        raise ArchiveError(f"{path.name} is no {kind} of frtop{f' but a {found}' * bool(found)}")
    parts: list[bytes] = []
    size = 0
    with opened(path) as file:
        most = min(MAX_CONTENT, max(FREE, RATIO * os.fstat(file.fileno()).st_size))
        is_first = file.read(len(FIRST_MAGIC)) == FIRST_MAGIC
        file.seek(len(FIRST_MAGIC) + _KIND if is_first else 0)
        stream = zlib.decompressobj(zlib.MAX_WBITS if is_first else _GZIP)
        try:
            # What follows the end is nobody's, and would be kept in memory.
            while not stream.eof and (data := stream.unconsumed_tail or file.read(_READ)):
                parts.append(stream.decompress(data, _READ * 16))
                size += len(parts[-1])
                if size > most:
                    raise ArchiveError(f"{path.name} unpacks to more than {most} bytes")
        except zlib.error as error:
            raise ArchiveError(f"{path.name} is damaged ({error})") from error
    if not stream.eof:
        raise ArchiveError(f"{path.name} is truncated: {size} bytes of it could be unpacked")
    return b"".join(parts)
