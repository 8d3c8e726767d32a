"""Checks a pickle before it runs: it may only build plain values, within bounds.

A memo index larger than the number of opcodes before it would allocate memory for all below it.
Hashing a shared or deeply nested tuple takes forever, or all of the stack.
"""

from __future__ import annotations

import pickletools
import re
from typing import Final

_MAX_TUPLE_SIZE: Final = 64
_MAX_TUPLE_DEPTH: Final = 3

_SIZED: Final = [re.escape(bytes((n,))) + b".{%d}" % n for n in range(120)]
_LONG_SIZED: Final = [re.escape(bytes((n, 0, 0, 0))) + b".{%d}" % n for n in range(120)]
_USUAL_OPCODES: Final = re.compile(
    b"(?:"
    rb"[hqK].[hqK].[hqK].[hqK].|[hqK].[hqK].|[hqK]."
    b"|[](}ueN\x88\x89)\x94as]+"
    rb"|M..|[Jj]....|r..[\x00-\x0f]\x00|[G\x95].{8}"
    b"|\x8a(?:" + b"|".join(_SIZED[1:10]) + b")"
    b"|\x8c(?:" + b"|".join(_SIZED) + b")"
    b"|X(?:" + b"|".join(_LONG_SIZED) + b")"
    b"){1,4000}",
    re.DOTALL,
)
"""A run of opcodes that torch and Python write, except long texts and tuples. Matched in C: a dump
has hundreds of thousands."""
_TEXT_SIZES: Final = {0x58: 4, 0x8C: 1}
"""Opcodes of texts, and the bytes of their sizes."""
_TUPLE2: Final = 0x86
_STACK_GLOBAL: Final = 0x93
_VALUES: Final = re.compile(
    "NONE|NEWTRUE|NEWFALSE|(BIN)?INT|BININT[12]|LONG1?|(BIN)?FLOAT|(SHORT_)?BINSTRING|STRING"
    "|(SHORT_)?(BIN)?UNICODE8?|(SHORT_)?BINBYTES|EMPTY_(LIST|DICT|TUPLE)"
)
_TUPLES: Final = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_ADDS: Final = {"APPEND": 1, "SETITEM": 2}
_PUTS: Final = frozenset({"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"})
_GETS: Final = frozenset({"GET", "BINGET", "LONG_BINGET"})
_MARKED: Final = frozenset({"TUPLE", "LIST", "DICT", "APPENDS", "SETITEMS"})
_SILENT: Final = frozenset({"PROTO", "FRAME", "STOP"})


class UnsafePickle(ValueError):
    """The pickle does something that no dump needs."""


def with_named_pairs(data: bytes) -> bytearray | None:
    """The pickle with "name a global" in place of each "make a pair"; None for unusual opcodes.

    The unpickler takes two texts as the name, nothing else, and asks `find_class` for the value. If
    that returns the two texts, no tuple is ever in another one.
    """
    named, at = bytearray(data), 2
    while (run := _USUAL_OPCODES.match(data, at)) or data[at : at + 1] != b".":
        at = run.end() if run is not None else at
        opcode = data[at] if at < len(data) else -1
        if opcode == _TUPLE2:
            named[at] = _STACK_GLOBAL
            at += 1
        elif opcode in _TEXT_SIZES:
            size = _TEXT_SIZES[opcode]
            at += 1 + size + int.from_bytes(data[at + 1 : at + 1 + size], "little")
        elif run is None:
            return None
    return named


def check_pickle(data: bytes) -> None:
    """Accepts a pickle that only builds plain values; slow.

    Raises:
        UnsafePickle: it does anything else, or too much.
        ValueError: it is damaged.
        LookupError: it is damaged.
    """
    _Checker().check(data)


class _Checker:
    """Checks opcode by opcode.

    The stack holds the tuple depth of each value; None is a mark.
    """

    def __init__(self) -> None:
        self._stack: list[int | None] = []
        self._memo: dict[int, int] = {}

    def check(self, data: bytes) -> None:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            name = opcode.name
            if _VALUES.fullmatch(name):
                self._stack.append(0)
            elif name in _PUTS:
                self._put(len(self._memo) if argument is None else int(argument), count)
            elif name in _GETS:
                self._stack.append(self._memo[int(argument or 0)])
            elif name in _SILENT:
                continue
            else:
                self._build(name)

    def _put(self, index: int, count: int) -> None:
        if not 0 <= index <= count:
            raise UnsafePickle(f"it asks for room for {index} values")
        self._memo[index] = self._stack[-1] or 0

    def _build(self, name: str) -> None:
        stack = self._stack
        if name == "MARK":
            stack.append(None)
        elif name in _TUPLES:
            parts = stack[-_TUPLES[name] :]
            del stack[-_TUPLES[name] :]
            stack.append(_depth(parts))
        elif name in _ADDS:
            del stack[-_ADDS[name] :]
        elif name in _MARKED:
            parts = self._to_mark()
            if name in ("TUPLE", "LIST", "DICT"):
                stack.append(_depth(parts) if name == "TUPLE" else 0)
        else:
            raise UnsafePickle(f"it has the opcode {name}, which no plain value needs")

    def _to_mark(self) -> list[int | None]:
        parts: list[int | None] = []
        while (top := self._stack.pop()) is not None:
            parts.append(top)
        return parts


def _depth(parts: list[int | None]) -> int:
    depth = 1 + max((part or 0 for part in parts), default=0)
    if depth > _MAX_TUPLE_DEPTH or len(parts) > _MAX_TUPLE_SIZE:
        raise UnsafePickle("it has tuples larger or deeper than those of a dump")
    return depth
