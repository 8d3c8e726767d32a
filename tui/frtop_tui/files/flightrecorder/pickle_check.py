"""Checks a pickle before it runs: it may only build plain values, within bounds.

A memo index larger than the number of opcodes before it would allocate memory for all below it.
Hashing a shared or deeply nested tuple takes forever, or all of the stack.
"""

from __future__ import annotations

import pickletools
import re
from typing import Final

_MAX_TUPLES: Final = 20_000
"""In the fast check, which does not measure depth: hashing nested tuples recurses."""
_MAX_TUPLE_SIZE: Final = 64
_MAX_TUPLE_DEPTH: Final = 3
_SHORT_TEXT: Final = 120

_TEXTS: Final = b"|".join(re.escape(bytes((n, 0, 0, 0))) + b".{%d}" % n for n in range(_SHORT_TEXT))
_NUMBERS: Final = b"|".join(re.escape(bytes((n,))) + b".{%d}" % n for n in range(1, 10))
_TORCH_OPCODES: Final = re.compile(
    b"(?:"
    rb"(?:[hqK].)+|[\](}ueN\x88\x89)]+|\x86(?![qr])"
    rb"|M..|[Jj]....|r..[\x00-\x0f]\x00"
    b"|\x8a(?:" + _NUMBERS + b")|X(?:" + _TEXTS + b")"
    b"){1,4000}",
    re.DOTALL,
)
"""A run of opcodes that torch writes. Matched in C: a dump has a hundred thousand."""
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


def check_pickle(data: bytes) -> None:
    """Accepts a pickle that only builds plain values.

    Raises:
        UnsafePickle: it does anything else, or too much.
        ValueError: it is damaged.
        LookupError: it is damaged.
    """
    if not _is_torch_pickle(data):
        _Checker().check(data)


def _is_torch_pickle(data: bytes) -> bool:
    """Whether every opcode is one that torch writes, and no tuple is shared or deep."""
    if data.count(b"\x86") > _MAX_TUPLES:
        return False
    at = 2
    while (run := _TORCH_OPCODES.match(data, at)) is not None:
        at = run.end()
        if data[at : at + 1] == b"X":
            size = int.from_bytes(data[at + 1 : at + 5], "little")
            if not _SHORT_TEXT <= size <= len(data) - at - 5:
                return False
            at += 5 + size
    return data[at : at + 1] == b"."


class _Checker:
    """Checks pickles of other writers opcode by opcode, slowly.

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
