"""Finds the line of the program that issued an op, in the Python frames that torch recorded.

An entry has a `torch::CapturedTraceback`: pairs of a code object and an instruction offset,
innermost first. The code object's table has the lines (Objects/locations.md of CPython). Its form
is the same from 3.11 to 3.13; frtop reads no lines from other releases.
"""

from __future__ import annotations

import struct
from typing import Final

from frtop_probe.proc.memory import NotReadable, ProcessMemory, to_words
from frtop_probe.unprepared import cxx
from frtop_probe.unprepared.cpython import Python

Site = tuple[str, int, str]
"""File, line, function."""

_FRAME: Final = 16  # PyCodeObject*, int lasti
_MAX_FRAMES: Final = 256
_MAX_DEPTH: Final = 32
"""Number of innermost frames to read: few of them are torch's own."""
_CODE_NAMES: Final = 112  # co_filename, co_name, co_qualname, co_linetable
_FIRST_LINE: Final = {False: 72, True: 68}
"""Offset of co_firstlineno: 3.12, which also changed int, dropped `co_warmup` before it."""
_STATE_SHIFT: Final = 2  # a 3.14 build with another shift may have another code object
# Forms of an entry of the table, in the high bits of its first byte.
_NO_LINE: Final = 15
_LONG: Final = 14
_NO_COLUMN: Final = 13
_ONE_LINE: Final = range(10, 13)


class RecordedLines:
    """Reads lines of one process. Remembers code objects only for one look: they may be freed."""

    def __init__(self, memory: ProcessMemory, python: Python, torch: str) -> None:
        """`torch` is the folder of the package, as the process sees it."""
        self._memory = memory
        self._torch = (f"{torch}/", "<")  # also code that was never in a file
        self._python = python
        self._known: dict[tuple[int, int], Site | None] = {}

    def start_look(self) -> None:
        """Forgets the code objects of the last look."""
        self._known.clear()

    def of(self, traceback: int) -> Site | None:
        """Returns the innermost line outside torch; None if it cannot be validated."""
        layout = self._python.layout
        if not traceback or not layout.typed_keys or layout.state_shift != _STATE_SHIFT:
            return None
        try:
            # vtable, then frames_, a vector.
            words = to_words(self._memory.read(traceback + 8, cxx.VECTOR))
            begin, count = cxx.vector(words, _FRAME, _MAX_FRAMES)
            raw = self._memory.read(begin, _FRAME * min(count, _MAX_DEPTH)) if count else b""
            for code, offset in struct.iter_unpack("<Qi4x", raw):
                site = self._site(code, offset)
                if site is not None and not site[0].startswith(self._torch):
                    return site
        except NotReadable:
            pass  # overwritten during the read
        return None

    def _site(self, code: int, offset: int) -> Site | None:
        key = code, offset
        if key not in self._known:
            self._known[key] = self._read(code, offset)
        return self._known[key]

    def _read(self, code: int, offset: int) -> Site | None:
        if not cxx.is_pointer(code) or self._python.type_name(code) != "code":
            raise NotReadable(cxx.UNKNOWN_LAYOUT, "code object")
        file, function, _, table = self._memory.words(code + _CODE_NAMES, 4)
        first = self._memory.read(code + _FIRST_LINE[self._python.layout.tagged_int], 4)
        (first_line,) = struct.unpack("<i", first)
        line = line_at(self._python.octets(table), first_line, offset)
        if line is None:
            return None
        return self._python.text(file), line, self._python.text(function)


def line_at(table: bytes, first_line: int, offset: int) -> int | None:
    """Finds the line of the instruction at a byte offset in `co_linetable`, perhaps cut."""
    line, at, begin = first_line, 0, 0
    while at < len(table):
        head = table[at]
        if not head & 0x80:
            return None  # not the first byte of an entry
        form, end = head >> 3 & 15, begin + 2 * ((head & 7) + 1)
        at += 1
        if form in (_LONG, _NO_COLUMN):
            value = _number(table, at)
            line += -(value >> 1) if value & 1 else value >> 1
        elif form in _ONE_LINE:
            line += form - _ONE_LINE.start
        if begin <= offset < end:
            return None if form == _NO_LINE or line <= 0 else line
        begin = end
        while at < len(table) and not table[at] & 0x80:  # the rest of the entry
            at += 1
    return None


def _number(table: bytes, at: int) -> int:
    """Reads a number in groups of six bits, the lowest first."""
    value = shift = 0
    while at < len(table) and shift < 60:
        value |= (table[at] & 0x3F) << shift
        shift += 6
        at += 1
        if not table[at - 1] & 0x40:
            break
    return value
