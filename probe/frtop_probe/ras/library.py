"""Which NCCL a process has mapped, and its version, out of the library's file.

The version is in the file's name (`libnccl.so.2.28.9`), or in its read-only data. The file is
only read, within bounds; nothing of it is loaded or run. May block: see `__main__`.
"""

from __future__ import annotations

import os
import re
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from frtop_probe.proc.memory import PROC

MAX_DATA: Final = 16 << 20
"""Bytes of read-only data that are searched. NCCL 2.27.3 has 0.2 MB."""
MAX_SECTIONS: Final = 512
MAX_NAMES: Final = 1 << 20
BY_NAME: Final = "the name of its file"
BY_DATA: Final = "the data of its file"
UNVERIFIED: Final = "a file with its name, perhaps not the one that is mapped"

_LIBRARY: Final = re.compile(r"/libnccl\.so(?:\.\d+)*$")
_IN_NAME: Final = re.compile(r"/libnccl\.so\.(\d{1,2}\.\d{1,3}\.\d{1,3})$")
_IN_DATA: Final = re.compile(rb"NCCL version (\d{1,2}\.\d{1,3}\.\d{1,3})(?![.\d])")
_CHUNK: Final = 1 << 20
_OVERLAP: Final = 64
_HEADER: Final = 64
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_ALLOCATED: Final = 2
_DELETED: Final = " (deleted)"


@dataclass(frozen=True, slots=True)
class MappedLibrary:
    """libnccl as one process has it mapped: `path` as that process sees it."""

    path: str
    device: int
    inode: int
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class LibraryVersion:
    """`version` is "2.28.9", "" if not known; `source` says how it was found, or why not."""

    version: str
    source: str


def find_library(maps: str) -> MappedLibrary | None:
    """Finds libnccl in the text of /proc/PID/maps; None where none is mapped."""
    for line in maps.splitlines():
        fields = line.split(None, 5)
        if len(fields) < 6:
            continue
        path = fields[5].removesuffix(_DELETED)
        if not _LIBRARY.search(path):
            continue
        major, _, minor = fields[3].partition(":")
        try:
            device, inode = os.makedev(int(major, 16), int(minor, 16)), int(fields[4])
        except (ValueError, OverflowError):
            continue
        return MappedLibrary(path, device, inode, deleted=fields[5].endswith(_DELETED))
    return None


def read_version(pid: int, library: MappedLibrary, proc: Path = PROC) -> LibraryVersion:
    """Reads the version of a mapped library; never raises for what is wrong with the file."""
    if (named := _IN_NAME.search(library.path)) is not None:
        return LibraryVersion(named[1], BY_NAME)
    if library.deleted:
        return LibraryVersion("", "its file was deleted or replaced")
    try:
        # As the process sees it, also inside a container.
        with (proc / str(pid) / "root" / library.path.lstrip("/")).open("rb") as file:
            status = os.fstat(file.fileno())
            found = version_in(file)
    except OSError as error:
        return LibraryVersion("", f"its file cannot be read: {error.strerror}")
    except ValueError as error:
        return LibraryVersion("", str(error))
    # Overlay file systems show another device, and older kernels another inode, in maps.
    same = status.st_ino == library.inode
    return LibraryVersion(found, BY_DATA if same else UNVERIFIED)


def version_in(file: BinaryIO) -> str:
    """The version in the read-only data of a library.

    Raises:
        ValueError: it is no ELF file of 64 bits, or says no version, or several.
        OSError: it cannot be read.
    """
    offset, size = _read_only_data(file)
    found: set[bytes] = set()
    file.seek(offset)
    rest, left = b"", min(size, MAX_DATA)
    while left > 0 and (part := file.read(min(_CHUNK, left))):
        left -= len(part)
        data = rest + part
        found.update(match[1] for match in _IN_DATA.finditer(data))
        rest = data[-_OVERLAP:]
    if len(found) != 1:
        raise ValueError("its file says no version" if not found else "its file says two versions")
    return found.pop().decode()


def _read_only_data(file: BinaryIO) -> tuple[int, int]:
    """Offset and size of the section .rodata."""
    header = file.read(_HEADER)
    size = os.fstat(file.fileno()).st_size
    if len(header) < _HEADER or header[:6] != b"\x7fELF\x02\x01":
        raise ValueError("its file is no ELF file of 64 bits")
    (table,) = struct.unpack_from("<Q", header, 40)
    width, count, names_at = struct.unpack_from("<HHH", header, 58)
    if width != _SECTION.size or not 0 < count <= MAX_SECTIONS or names_at >= count:
        raise ValueError("its file has no sections")
    file.seek(min(table, size))
    raw = file.read(width * count)
    if len(raw) != width * count:
        raise ValueError("its file is cut off")
    sections = [_SECTION.unpack_from(raw, at) for at in range(0, len(raw), width)]
    file.seek(min(sections[names_at][4], size))
    names = file.read(min(sections[names_at][5], MAX_NAMES))
    for name_at, _, flags, _, offset, length, *_ in sections:
        name = names[name_at : name_at + 16].partition(b"\0")[0]
        if name == b".rodata" and flags & _ALLOCATED and offset + length <= size:
            return offset, length
    raise ValueError("its file has no read-only data")


def own_pid(pid: int, proc: Path = PROC) -> int:
    """The pid that a process has by its own count: the innermost of its pid namespaces."""
    with suppress(OSError, ValueError, IndexError):
        for line in (proc / str(pid) / "status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    return pid
