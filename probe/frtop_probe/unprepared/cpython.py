"""Reads objects of a CPython process from outside: 3.10 to 3.14, with the GIL.

Layouts: cpython/*.h of each release, and from 3.13 `_Py_DebugOffsets`
(internal/pycore_debug_offsets.h), which is checked against the offsets used here. Every object's
type is checked by name before it is read.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from frtop_probe.proc.memory import Mapping, NotReadable, ProcessMemory, to_words
from frtop_probe.unprepared.elf import Image

NO_PYTHON: Final = "no Python interpreter found in this process"
UNKNOWN_PYTHON: Final = "c10d state not readable: an unknown build of Python"
FREE_THREADED: Final = "c10d state not readable: free-threaded Python is not supported"
NOT_STARTED: Final = "no Python runs in this process: it has not started yet, or it is ending"
UNEXPECTED: Final = "c10d state not readable: an object is not what it should be"

_POINTER_BYTES: Final = 8
_TYPE: Final = 8  # PyObject.ob_type, after ob_refcnt
_TYPE_NAME: Final = 24  # PyTypeObject.tp_name, after PyVarObject
_SIZE: Final = 16  # PyVarObject.ob_size, PyLong's lv_tag, str's length, dict's ma_used
_ITEMS: Final = 24  # PyTupleObject.ob_item, PyLong's digits
_BYTES: Final = 32  # PyBytesObject.ob_sval, after ob_shash
_STATE: Final = 32  # PyASCIIObject.state, after length and hash
_KEYS: Final = 32  # PyDictObject.ma_keys, then ma_values
_MODULE_DICT: Final = 16  # PyModuleObject.md_dict
_MAX_NAME: Final = 128
_MAX_TEXT: Final = 4096
_MAX_ITEMS: Final = 65_536
_MAX_DIGITS: Final = 4
_MAX_ENTRIES: Final = 200_000
_DIGIT_BITS: Final = 30
_KIND_GENERAL: Final = 0
_KIND_SPLIT: Final = 2
_COOKIE: Final = b"xdebugpy"
_INTERPRETER_WORDS: Final = 2048
"""Words of PyInterpreterState to search if `modules` is not at its expected place."""
_LIBRARY: Final = re.compile(r"/libpython3\.\d+t?\.so[.\d]*$")


@dataclass(frozen=True, slots=True)
class PythonLayout:
    """The differences between releases. Offsets and sizes in bytes.

    Attributes:
        interpreters: `_PyRuntime.interpreters.head`.
        modules: `PyInterpreterState.imports.modules` (3.10, 3.11: `modules`).
        text: Size of PyASCIIObject: 3.12 dropped `wstr`.
        wide_text: Size of PyCompactUnicodeObject.
        state_shift: Bits before `kind` in PyASCIIObject.state: 2, or 16 in builds of 3.14 whose
            `interned` is a short.
        tagged_int: 3.12 moved the sign of int into the low bits of the size.
        typed_keys: 3.11 gave dict keys a kind, and the logarithms of their sizes.
        tuple_items: First item of a tuple: 3.14 put the hash before it.
    """

    interpreters: int
    modules: int
    text: int
    wide_text: int
    state_shift: int
    tagged_int: bool
    typed_keys: bool
    tuple_items: int = 24


FIXED: Final = {
    (3, 10): PythonLayout(40, 856, 48, 72, 2, tagged_int=False, typed_keys=False),
    (3, 11): PythonLayout(48, 888, 48, 72, 2, tagged_int=False, typed_keys=True),
    (3, 12): PythonLayout(48, 944, 40, 56, 2, tagged_int=True, typed_keys=True),
}
_STATE_SHIFTS: Final = (2, 16)
"""Debian's 3.14.10 has 2; other sources have 16. The right one can read `sys.modules`."""
_MODULES_WORD: Final = {(3, 13): 11, (3, 14): 12}
"""Word of `_Py_DebugOffsets` with imports_modules: 3.14 put threads_main before it."""
_HEAD_WORD: Final = 5
_OFFSETS_WORDS: Final = 16


@dataclass(frozen=True, slots=True)
class DictTable:
    """Where a dict keeps its entries, valid until the dict is resized.

    Attributes:
        keys: Address of PyDictKeysObject.
        entries: Address of the first entry.
        width: Words of an entry: two, or three with a hash first.
        used: Entries with a value.
        count: Entries with or without a value.
    """

    keys: int
    entries: int
    width: int
    used: int
    count: int


@dataclass(frozen=True, slots=True)
class DictEntry:
    """One entry of a dict: its place, and the addresses of its key and value."""

    place: int
    key: int
    value: int


class Python:
    """Reads objects. `modules` is the address of sys.modules."""

    def __init__(self, memory: ProcessMemory, layout: PythonLayout) -> None:
        """Takes a layout; `open_python` finds and validates it."""
        self.memory = memory
        self.layout = layout
        self.modules = 0
        self._type_names: dict[int, str] = {}

    def type_name(self, address: int) -> str:
        """Returns tp_name of an object's type."""
        kind = self.memory.word(address + _TYPE)
        name = self._type_names.get(kind)
        if name is None:
            raw = self.memory.read(self.memory.word(kind + _TYPE_NAME), _MAX_NAME)
            text, end, _ = raw.partition(b"\0")
            if not end or not text.isascii():
                raise NotReadable(UNEXPECTED, "type name")
            name = self._type_names[kind] = text.decode()
        return name

    def expect(self, address: int, name: str) -> None:
        """Raises `NotReadable` if an object has another type."""
        if (found := self.type_name(address)) != name:
            raise NotReadable(UNEXPECTED, f"{found} instead of {name}")

    def text(self, address: int) -> str:
        """Returns a str of at most 4,096 characters."""
        self.expect(address, "str")
        size = self.memory.word(address + _SIZE)
        if size > _MAX_TEXT:
            raise NotReadable(UNEXPECTED, "long str")
        raw = self.memory.read(address, self.layout.text + size)
        return self._decode(address, raw, size)

    def integer(self, address: int) -> int:
        """Returns an int of at most 120 bits."""
        self.expect(address, "int")
        return self._digits(address)

    def truth(self, address: int) -> bool:
        """Returns a bool, which is an int in memory."""
        self.expect(address, "bool")
        return self._digits(address) != 0

    def _digits(self, address: int) -> int:
        (tag,) = struct.unpack("<q", self.memory.read(address + _SIZE, 8))
        if self.layout.tagged_int:
            count, sign = tag >> 3, {0: 1, 1: 0, 2: -1}.get(tag & 3)
        else:
            count, sign = abs(tag), (tag > 0) - (tag < 0)
        if not 0 <= count <= _MAX_DIGITS or sign is None:
            raise NotReadable(UNEXPECTED, "int")
        digits = struct.unpack(f"<{count}I", self.memory.read(address + _ITEMS, 4 * count))
        total = sum(digit << _DIGIT_BITS * place for place, digit in enumerate(digits))
        return total if sign > 0 else -total if sign else 0

    def items(self, address: int) -> tuple[int, ...]:
        """Returns the addresses of a tuple's items."""
        self.expect(address, "tuple")
        size = self.memory.word(address + _SIZE)
        if size > _MAX_ITEMS:
            raise NotReadable(UNEXPECTED, "long tuple")
        return self.memory.words(address + self.layout.tuple_items, size)

    def octets(self, address: int) -> bytes:
        """Returns a bytes object, cut to 4,096 bytes."""
        self.expect(address, "bytes")
        size = self.memory.word(address + _SIZE)
        return self.memory.read(address + _BYTES, min(size, _MAX_TEXT))

    def table(self, address: int) -> DictTable:
        """Returns where a dict's entries are.

        Raises:
            NotReadable: It is not a dict, is split, or has more than 200,000 entries.
        """
        self.expect(address, "dict")
        used, _, keys, values = self.memory.words(address + _SIZE, 4)
        if self.layout.typed_keys:
            table = self._typed_table(keys, used)
        else:
            table = self._plain_table(keys, used)
        if values or used > table.count or table.count > _MAX_ENTRIES:
            raise NotReadable(UNEXPECTED, "dict")
        return table

    def entries(self, address: int) -> list[DictEntry]:
        """Returns all entries of a dict that have values.

        Raises:
            NotReadable: as for `table`, or the dict changed during the read.
        """
        table = self.table(address)
        if not table.count:
            return []
        words = self.memory.words(table.entries, table.width * table.count)
        found = list(_used_entries(words, table.width))
        if len(found) != table.used:
            raise NotReadable(UNEXPECTED, "dict changed")
        return found

    def find(self, address: int, names: Collection[str]) -> dict[str, DictEntry]:
        """Returns the entries of a dict whose keys are among `names`, with one read per key."""
        found: dict[str, DictEntry] = {}
        sizes = {len(name) for name in names}
        most = self.layout.text + max(sizes)
        for entry in self.entries(address):
            name = self._short_text(entry.key, sizes, most)
            if name in names:
                found[name] = entry
                if len(found) == len(names):
                    break
        return found

    def module_dict(self, address: int) -> int:
        self.expect(address, "module")
        return self.memory.word(address + _MODULE_DICT)

    def _short_text(self, address: int, sizes: set[int], most: int) -> str:
        """Returns an ASCII str of one of these lengths; "" for any other object."""
        try:
            raw = self.memory.read(address, most)
        except NotReadable:  # a short object at the end of mapped memory
            raw = self.memory.read(address, self.layout.text)
        (size,) = struct.unpack_from("<Q", raw, _SIZE)
        if size not in sizes or len(raw) < self.layout.text + size:
            return ""
        (kind,) = struct.unpack_from("<Q", raw, _TYPE)
        if kind not in self._type_names:
            self.type_name(address)
        if self._type_names[kind] != "str":
            return ""
        return self._decode(address, raw, size)

    def _decode(self, address: int, raw: bytes, size: int) -> str:
        (state,) = struct.unpack_from("<I", raw, _STATE)
        bits = state >> self.layout.state_shift
        width, compact, ascii_only = bits & 7, bits & 8, bits & 16
        if not compact or width not in (1, 2, 4):
            raise NotReadable(UNEXPECTED, "str")
        if ascii_only:
            data, coding = raw[self.layout.text :][:size], "ascii"
        else:
            data = self.memory.read(address + self.layout.wide_text, size * width)
            coding = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}[width]
        try:
            return data.decode(coding)
        except UnicodeDecodeError as error:
            raise NotReadable(UNEXPECTED, "characters of a str") from error

    def _typed_table(self, keys: int, used: int) -> DictTable:
        # PyDictKeysObject since 3.11: refcnt 8, log2_size 1, log2_index_bytes 1, kind 1, version 4,
        # usable 8, nentries 8, indices.
        raw = self.memory.read(keys, 32)
        log_bytes, kind = raw[9], raw[10]
        (count,) = struct.unpack_from("<Q", raw, 24)
        if kind >= _KIND_SPLIT or log_bytes > _DIGIT_BITS:
            raise NotReadable(UNEXPECTED, "keys of a dict")
        width = 3 if kind == _KIND_GENERAL else 2
        return DictTable(keys, keys + 32 + (1 << log_bytes), width, used, count)

    def _plain_table(self, keys: int, used: int) -> DictTable:
        # PyDictKeysObject in 3.10: refcnt, size, lookup, usable, nentries, indices; an index has as
        # many bytes as the signed size needs.
        _, size, _, _, count = self.memory.words(keys, 5)
        width = next(
            (w for w, most in ((1, 0xFF), (2, 0xFFFF), (4, 0xFFFFFFFF)) if size <= most), 8
        )
        if size > 4 * _MAX_ENTRIES:
            raise NotReadable(UNEXPECTED, "keys of a dict")
        return DictTable(keys, keys + 40 + size * width, 3, used, count)


def open_python(memory: ProcessMemory, files: dict[str, Mapping], executable: str) -> Python:
    """Finds the interpreter and sys.modules.

    Raises:
        NotReadable: There is no Python, or no known layout fits it.
    """
    image, runtime = _find_runtime(memory, files, executable)
    layouts = _layouts(memory, image, runtime)
    reason = NotReadable(UNKNOWN_PYTHON)
    for layout in layouts:
        python = Python(memory, layout)
        interpreter = memory.word(runtime + layout.interpreters)
        if not interpreter:
            raise NotReadable(NOT_STARTED)
        try:
            python.modules = _find_modules(python, interpreter)
        except NotReadable as error:
            reason = error
        else:
            return python
    raise NotReadable(UNKNOWN_PYTHON, reason.detail)


def _find_runtime(
    memory: ProcessMemory, files: dict[str, Mapping], executable: str
) -> tuple[Image, int]:
    candidates = [path for path in files if _LIBRARY.search(path)]
    if executable in files:
        candidates.append(executable)
    for path in candidates:
        try:
            image = Image(memory, files[path])
            address = image.address_of("_PyRuntime")
        except NotReadable:
            continue
        if address is not None:
            return image, address
    raise NotReadable(NO_PYTHON)


def _layouts(memory: ProcessMemory, image: Image, runtime: int) -> Sequence[PythonLayout]:
    symbol = image.address_of("Py_Version")  # PY_VERSION_HEX, exported since 3.11
    if symbol is None:
        return [FIXED[3, 10]]
    value = memory.word(symbol)
    version = value >> 24 & 0xFF, value >> 16 & 0xFF
    if version in FIXED:
        return [FIXED[version]]
    if version not in _MODULES_WORD:
        raise NotReadable(UNKNOWN_PYTHON, f"{version}")
    found = debug_layout(memory.read(runtime, _POINTER_BYTES * _OFFSETS_WORDS), version)
    return [replace(found, state_shift=shift) for shift in _STATE_SHIFTS]


def debug_layout(raw: bytes, version: tuple[int, int]) -> PythonLayout:
    """Reads the beginning of `_Py_DebugOffsets`, which is at the start of `_PyRuntime`.

    Raises:
        NotReadable: it is missing, or belongs to another version or a free-threaded build.
    """
    words = to_words(raw)
    if raw[:8] != _COOKIE or (words[1] >> 24 & 0xFF, words[1] >> 16 & 0xFF) != version:
        raise NotReadable(UNKNOWN_PYTHON, "no debug offsets")
    if words[2]:
        raise NotReadable(FREE_THREADED)
    return replace(
        FIXED[3, 12],
        interpreters=words[_HEAD_WORD],
        modules=words[_MODULES_WORD[version]],
        tuple_items=32 if version >= (3, 14) else 24,
    )


def _find_modules(python: Python, interpreter: int) -> int:
    expected = python.memory.word(interpreter + python.layout.modules)
    try:
        if _is_modules(python, expected):
            return expected
    except NotReadable:
        pass
    # A patch release or a distribution moved it. No other dict holds `sys` and `builtins`, both
    # modules, and these thousands of words are searched only once.
    for address in python.memory.words(interpreter, _INTERPRETER_WORDS):
        try:
            if address and address % _POINTER_BYTES == 0 and _is_modules(python, address):
                return address
        except NotReadable:
            continue
    raise NotReadable(UNKNOWN_PYTHON, "no sys.modules")


def _is_modules(python: Python, address: int) -> bool:
    if python.type_name(address) != "dict":
        return False
    found = python.find(address, ("sys", "builtins"))
    return len(found) == 2 and all(
        python.type_name(entry.value) == "module" for entry in found.values()
    )


def _used_entries(words: Sequence[int], width: int) -> Iterator[DictEntry]:
    for place in range(len(words) // width):
        key, value = words[place * width + width - 2 : place * width + width]
        if key and value:
            yield DictEntry(place, key, value)
