"""Small ELF files with the name and the version string of libnccl, and nothing else of it."""

from __future__ import annotations

import struct
from pathlib import Path

_SECTION = struct.Struct("<IIQQQQIIQQ")
_NAMES = b"\0.rodata\0.shstrtab\0"


def elf(data: bytes) -> bytes:
    """An ELF file of 64 bits whose .rodata is `data`."""
    rodata_at = 64
    names_at = rodata_at + len(data)
    table_at = names_at + len(_NAMES)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, 0, table_at, 0, 64, 56, 0,
        _SECTION.size, 3, 2,
    )  # fmt: skip
    sections = (
        _SECTION.pack(0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        _SECTION.pack(1, 1, 2, rodata_at, rodata_at, len(data), 0, 0, 32, 0),
        _SECTION.pack(9, 3, 0, 0, names_at, len(_NAMES), 0, 0, 1, 0),
    )
    return header + data + _NAMES + b"".join(sections)


def write_library(folder: Path, version: str = "2.28.9", name: str = "libnccl.so.2") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    text = f"NCCL version {version}+cuda13.0\0NCCL version {version} compiled with CUDA 13.0\n\0"
    path.write_bytes(elf(b"\0" * 3000 + text.encode() + b"\0" * 3000))
    return path
