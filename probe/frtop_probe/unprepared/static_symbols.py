"""Finds local symbols of a library: .symtab is only in the file, never in memory.

Uses pread: with a mapping, a shrinking file would kill the reader (SIGBUS).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import Final

from frtop_probe.proc.memory import NotReadable
from frtop_probe.unprepared.elf import Header, Image

STRIPPED: Final = "ring not readable: stripped libtorch"
CHANGED: Final = "ring not readable: libtorch on disk differs from the one in memory"
NO_FILE: Final = "ring not readable: libtorch's file cannot be opened"

_CHUNK: Final = 4 << 20
_MAX_TABLE: Final = 1 << 30
"""Bytes of .symtab or .strtab. libtorch_cuda's strings are about 100 MiB."""
_MAX_SECTIONS: Final = 4096
_FARTHEST: Final = 1 << 62
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
SYMBOLS: Final = 2
EXPORTED: Final = 11
"""Kinds of section: .symtab, which `strip` removes, and .dynsym, which it keeps."""
_Key = tuple[int, int, int, int, str]


class StaticSymbols:
    """Looks up local symbols, once per file: takes 30 to 170 ms for libtorch."""

    def __init__(self) -> None:
        self._values: dict[_Key, int | None] = {}

    def address_of(self, pid: int, image: Image, name: str) -> int:
        """Returns the run-time address of a local symbol.

        Raises:
            NotReadable: `STRIPPED`, `CHANGED` or `NO_FILE`.
        """
        path = f"/proc/{pid}/root{image.mapping.path}"
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise NotReadable(NO_FILE, str(error)) from error
        try:
            value = self._value(descriptor, image.header, name)
        except (OSError, struct.error) as error:
            raise NotReadable(NO_FILE, str(error)) from error
        finally:
            os.close(descriptor)
        if value is None:
            raise NotReadable(STRIPPED, name)
        return image.bias + value

    def _value(self, descriptor: int, header: Header, name: str) -> int | None:
        # The header holds the place of the section table, and the program headers hold the sizes of
        # all segments: no two builds share them.
        for expected, at in ((header.own, 0), (header.table, header.place)):
            if os.pread(descriptor, len(expected), at) != expected:
                raise NotReadable(CHANGED)
        status = os.fstat(descriptor)
        key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, name)
        if key not in self._values:
            self._values[key] = find_symbol(descriptor, name)
        return self._values[key]


def find_symbol(descriptor: int, name: str, kind: int = SYMBOLS) -> int | None:
    """Returns the value of a symbol in an ELF file; None if the table lacks it."""
    header = os.pread(descriptor, 64, 0)
    (table,) = struct.unpack_from("<Q", header, 40)
    size, count = struct.unpack_from("<HH", header, 58)
    if size != _SECTION.size or not 0 < count <= _MAX_SECTIONS:
        return None
    raw = _read(descriptor, size * count, table)
    sections = [_SECTION.unpack_from(raw, at) for at in range(0, len(raw) - size + 1, size)]
    symbols = next((section for section in sections if section[1] == kind), None)
    if symbols is None or symbols[6] >= len(sections):
        return None
    strings = sections[symbols[6]]
    if max(symbols[5], strings[5]) > _MAX_TABLE:
        return None
    wanted = b"\0" + name.encode() + b"\0"
    at = next(_places(descriptor, strings[4], strings[5], wanted, 1), None)
    if at is None:
        return None
    return _value_named(descriptor, symbols[4], symbols[5], at + 1)


def _value_named(descriptor: int, start: int, size: int, name_offset: int) -> int | None:
    wanted = struct.pack("<I", name_offset)
    for place in _places(descriptor, start, size, wanted, _SYMBOL.size):
        _, _, _, section, value, _ = _SYMBOL.unpack(_read(descriptor, _SYMBOL.size, start + place))
        if section and value:
            return int(value)
    return None


def _places(descriptor: int, start: int, size: int, wanted: bytes, step: int) -> Iterator[int]:
    """Yields the offsets of `wanted` in a part of a file, if they are multiples of `step`."""
    done = 0
    while done < size:
        data = _read(descriptor, min(_CHUNK + len(wanted), size - done), start + done)
        if len(data) < len(wanted):
            return
        at = data.find(wanted)
        while 0 <= at < _CHUNK:
            if (done + at) % step == 0:
                yield done + at
            at = data.find(wanted, at + 1)
        done += _CHUNK


def _read(descriptor: int, size: int, at: int) -> bytes:
    """Like `os.pread`, which raises if no file can have this offset."""
    return os.pread(descriptor, size, at) if at < _FARTHEST else b""
