"""Exported symbols of a library, read from the process's memory.

A look-up reads only buckets and chains of DT_GNU_HASH: about six small reads, and no file. So
containers, deleted files and dead file systems make no difference. Layouts: elf(5), and "GNU Hash
ELF Sections" of binutils.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from frtop_probe.proc.memory import Mapping, NotReadable, ProcessMemory, to_words

X86_64: Final = 62
AARCH64: Final = 183
UNKNOWN_LIBRARY: Final = "c10d state not readable: a library of an unknown format"

_HEADER_SIZE: Final = 64
_PROGRAM_HEADER: Final = struct.Struct("<IIQQQQQQ")
_MAX_PROGRAM_HEADERS: Final = 64
_MAX_DYNAMIC: Final = 64 << 10
_MAX_BUCKETS: Final = 1 << 24
_MAX_CHAIN: Final = 512
_CHAIN_STEP: Final = 8
"""Chain words per read; most chains have one to four."""
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_PT_LOAD: Final = 1
_PT_DYNAMIC: Final = 2
_DT_STRTAB: Final = 5
_DT_SYMTAB: Final = 6
_DT_GNU_HASH: Final = 0x6FFFFEF5


@dataclass(frozen=True, slots=True)
class Header:
    """What the headers of a library say: machine, segments, and the raw bytes to compare.

    `own` is the ELF header, `table` the program headers, at `place` in the file.
    """

    machine: int
    first_address: int
    dynamic_address: int
    dynamic_size: int
    own: bytes
    place: int
    table: bytes


@dataclass(frozen=True, slots=True)
class _Hash:
    buckets: int
    first_symbol: int
    bucket_table: int
    chain_table: int
    symbols: int
    strings: int


class Image:
    """A library in the memory of a process; `address_of` finds exported symbols."""

    def __init__(self, memory: ProcessMemory, mapping: Mapping) -> None:
        """Reads header and dynamic section.

        Raises:
            NotReadable: It is not a 64-bit little-endian ELF of a known machine with DT_GNU_HASH.
        """
        self.memory = memory
        self.mapping = mapping
        self.header = _read_header(memory, mapping)
        self.bias = mapping.start - self.header.first_address
        self._hash = self._read_hash()

    @property
    def machine(self) -> int:
        """Returns e_machine: `X86_64` or `AARCH64`."""
        return self.header.machine

    def contains(self, address: int) -> bool:
        """Returns whether an address is between the library's first and last mapped byte."""
        return self.mapping.start <= address < self.mapping.end

    def address_of(self, name: str) -> int | None:
        """Returns the run-time address of an exported symbol; None if not found.

        Raises:
            NotReadable: the tables cannot be read.
        """
        wanted = name.encode()
        value = gnu_hash(wanted)
        table = self._hash
        bucket = self._small(table.bucket_table + 4 * (value % table.buckets), 1)[0]
        if bucket < table.first_symbol:
            return None
        for index, end in self._chain(bucket, value):
            if index is not None and (found := self._symbol(index, wanted)) is not None:
                return found
            if end:
                break
        return None

    def _chain(self, index: int, value: int) -> list[tuple[int | None, bool]]:
        """Returns, per step, the symbol's index if its hash fits, and whether the chain ends."""
        steps: list[tuple[int | None, bool]] = []
        while len(steps) < _MAX_CHAIN:
            at = self._hash.chain_table + 4 * (index - self._hash.first_symbol)
            for offset, word in enumerate(self._small(at, _CHAIN_STEP)):
                end = bool(word & 1)
                steps.append((index + offset if word | 1 == value | 1 else None, end))
                if end:
                    return steps
            index += _CHAIN_STEP
        raise NotReadable(UNKNOWN_LIBRARY, "endless chain")

    def _symbol(self, index: int, wanted: bytes) -> int | None:
        raw = self.memory.read(self._hash.symbols + _SYMBOL.size * index, _SYMBOL.size)
        name, _, _, section, value, _ = _SYMBOL.unpack(raw)
        if not section or not value:  # imported, not defined here
            return None
        text = self.memory.read(self._hash.strings + name, len(wanted) + 1)
        return self.bias + value if text == wanted + b"\0" else None

    def _small(self, address: int, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}I", self.memory.read(address, 4 * count))

    def _read_hash(self) -> _Hash:
        tags: dict[int, int] = {}
        address = self.bias + self.header.dynamic_address
        entries = to_words(self.memory.read(address, self.header.dynamic_size // 16 * 16))
        for tag, value in zip(entries[::2], entries[1::2], strict=True):
            if tag == 0:
                break
            tags[tag] = value
        try:
            hashes, symbols, strings = (
                self._absolute(tags[tag]) for tag in (_DT_GNU_HASH, _DT_SYMTAB, _DT_STRTAB)
            )
        except KeyError as error:
            raise NotReadable(UNKNOWN_LIBRARY, "no DT_GNU_HASH") from error
        buckets, first, bloom, _ = self._small(hashes, 4)
        if not 0 < buckets <= _MAX_BUCKETS or bloom > _MAX_BUCKETS:
            raise NotReadable(UNKNOWN_LIBRARY, "hash table")
        table = hashes + 16 + 8 * bloom
        return _Hash(buckets, first, table, table + 4 * buckets, symbols, strings)

    def _absolute(self, address: int) -> int:
        # glibc's loader adds the bias to pointers of the dynamic section; musl's does not.
        return address if address >= self.mapping.start else self.bias + address


def parse_header(data: bytes, table: bytes) -> Header:
    """Parses an ELF header, and the program headers whose place it tells.

    Raises:
        NotReadable: as for `Image`.
    """
    place, size = table_of(data)
    (machine,) = struct.unpack_from("<H", data, 18)
    if machine not in (X86_64, AARCH64):
        raise NotReadable(UNKNOWN_LIBRARY, f"machine {machine}")
    if len(table) != size:
        raise NotReadable(UNKNOWN_LIBRARY, "program headers")
    first: int | None = None
    dynamic: tuple[int, int] | None = None
    for kind, _, offset, address, _, _, memory_size, _ in _PROGRAM_HEADER.iter_unpack(table):
        if kind == _PT_LOAD and offset == 0 and first is None:
            first = address
        elif kind == _PT_DYNAMIC:
            dynamic = (address, memory_size)
    if first is None or dynamic is None or not 0 < dynamic[1] <= _MAX_DYNAMIC:
        raise NotReadable(UNKNOWN_LIBRARY, "no dynamic section")
    return Header(machine, first, *dynamic, data[:_HEADER_SIZE], place, table)


def table_of(data: bytes) -> tuple[int, int]:
    """Returns the place in the file and the size of the program headers, from the ELF header.

    Raises:
        NotReadable: as for `Image`.
    """
    if len(data) < _HEADER_SIZE or data[:6] != b"\x7fELF\x02\x01":  # ELFCLASS64, ELFDATA2LSB
        raise NotReadable(UNKNOWN_LIBRARY, "not a 64-bit ELF")
    (place,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    if size != _PROGRAM_HEADER.size or not 0 < count <= _MAX_PROGRAM_HEADERS:
        raise NotReadable(UNKNOWN_LIBRARY, "program headers")
    return place, size * count


def gnu_hash(name: bytes) -> int:
    """Returns the DT_GNU_HASH hash: starts at 5381, times 33 plus each byte, in 32 bits."""
    value = 5381
    for byte in name:
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


def _read_header(memory: ProcessMemory, mapping: Mapping) -> Header:
    """Reads both headers. BOLT, which made torch 2.15 for aarch64, puts the second one far away."""
    data = memory.read(mapping.start, _HEADER_SIZE)
    place, size = table_of(data)
    address = mapping.address_of(place, size)
    if address is None:
        raise NotReadable(UNKNOWN_LIBRARY, "program headers are not mapped")
    return parse_header(data, memory.read(address, size))
