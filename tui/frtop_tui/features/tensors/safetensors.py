"""Writes a safetensors file piece by piece: no tensor has to fit into memory.

    size of the header    8 bytes, little endian
    header                JSON: dtype, shape and offsets of each tensor; texts about the file
    data                  one tensor after the other

The package of that name takes complete tensors only, and its raw interface changes every
few releases; the tests read with it what is written here.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Final

from frtop_probe import atomic_file

DTYPES: Final[Mapping[str, tuple[str, int]]] = {
    "bool": ("BOOL", 1),
    "uint8": ("U8", 1),
    "int8": ("I8", 1),
    "uint16": ("U16", 2),
    "int16": ("I16", 2),
    "uint32": ("U32", 4),
    "int32": ("I32", 4),
    "uint64": ("U64", 8),
    "int64": ("I64", 8),
    "float16": ("F16", 2),
    "bfloat16": ("BF16", 2),
    "float32": ("F32", 4),
    "float64": ("F64", 8),
    "complex64": ("C64", 8),
    "float8_e4m3fn": ("F8_E4M3", 1),
    "float8_e5m2": ("F8_E5M2", 1),
    "float8_e4m3fnuz": ("F8_E4M3FNUZ", 1),
    "float8_e5m2fnuz": ("F8_E5M2FNUZ", 1),
    "float8_e8m0fnu": ("F8_E8M0", 1),
}
"""torch's name -> the format's name and bytes per element. The format has no complex128,
quantized or packed types."""


class NoSuchDtype(Exception):
    """The format has no such dtype."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor to be written."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes of data.

        Raises:
            NoSuchDtype: the format has no such dtype.
        """
        known = DTYPES.get(self.dtype.removeprefix("torch."))
        if known is None:
            raise NoSuchDtype(self.dtype)
        return prod(max(0, count) for count in self.shape) * known[1]


def header(entries: Sequence[Entry], texts: Mapping[str, str]) -> bytes:
    """The file up to the data, which follows in the order of `entries`.

    Raises:
        NoSuchDtype: the format has no such dtype.
    """
    content: dict[str, object] = {"__metadata__": dict(texts)}
    at = 0
    for entry in entries:
        end = at + entry.size
        name = DTYPES[entry.dtype.removeprefix("torch.")][0]
        content[entry.name] = {
            "dtype": name, "shape": list(entry.shape), "data_offsets": [at, end],
        }  # fmt: skip
        at = end
    text = json.dumps(content).encode()
    text += b" " * (-len(text) % 8)  # so that the data is aligned
    return len(text).to_bytes(8, "little") + text


class PartialFile:
    """A file under a temporary name until it is complete; readable by this user only."""

    def __init__(self, path: Path, head: bytes, size: int) -> None:
        """Allocates a file for `head` and `size` bytes of data beside `path`.

        Raises:
            OSError: it cannot be created, or there is no room.
        """
        self._path, self._replace_existing = path, os.path.lexists(path)
        self._draft = atomic_file.draft_path(path)
        self._start = len(head)
        self.size = len(head) + size
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._descriptor = os.open(self._draft, flags, 0o600)
        try:
            os.posix_fallocate(self._descriptor, 0, self.size)
            _write(self._descriptor, head, 0)
        except OverflowError as error:  # a shape of an agent can be any number
            self.discard()
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path)) from error
        except OSError as error:
            self.discard()
            error.filename = str(path)  # of a full disk it is unknown
            raise

    def write(self, data: bytes, at: int) -> None:
        """Writes `data` at offset `at` behind the header."""
        _write(self._descriptor, data, self._start + at)

    def finish(self, path: Path) -> int:
        """Renames the complete file in one step; gives its size in bytes.

        Raises:
            FileExistsError: `path` appeared after this file was begun.
            OSError: the rename failed.
        """
        if self._descriptor >= 0:
            os.fsync(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
        atomic_file.publish(
            self._draft, path, overwrite=self._replace_existing and path == self._path
        )
        return self.size

    def discard(self) -> None:
        """Deletes the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        with suppress(OSError):
            self._draft.unlink()


def _write(descriptor: int, data: bytes, at: int) -> None:
    left = memoryview(data)
    while left:
        written = os.pwrite(descriptor, left, at)
        left, at = left[written:], at + written
