"""What a pickle may do before it is let run: build plain values, within bounds.

No place in the memo for which room would have to be made, no tuple that could be shared
or be deep in another: hashing such a one takes for ever, or all of the stack.
"""

from __future__ import annotations

import pickletools
import re
from typing import Final

_MOST_TUPLES: Final = 20_000
"""As deep as tuples that cannot be shared may stand in each other: hashing one recurses."""
_WIDEST: Final = 64
_DEEPEST: Final = 3
_SHORT: Final = 120

_TEXTS: Final = b"|".join(re.escape(bytes((n, 0, 0, 0))) + b".{%d}" % n for n in range(_SHORT))
_NUMBERS: Final = b"|".join(re.escape(bytes((n,))) + b".{%d}" % n for n in range(1, 10))
_PLAIN: Final = re.compile(
    b"(?:"
    rb"(?:[hqK].)+|[\](}ueN\x88\x89)]+|\x86(?![qr])"
    rb"|M..|[Jj]....|r..[\x00-\x0f]\x00"
    b"|\x8a(?:" + _NUMBERS + b")|X(?:" + _TEXTS + b")"
    b"){1,4000}",
    re.DOTALL,
)
"""A run of opcodes as torch writes them; matched in C, as a dump has a hundred thousand."""
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


class ForeignOpcode(ValueError):
    """A pickle does what no dump does."""


def check(data: bytes) -> None:
    """Lets pass what only builds plain values.

    Raises:
        ForeignOpcode: it does anything else, or too much.
        ValueError: it is damaged.
        LookupError: it is damaged.
    """
    if not _is_usual(data):
        _Checker().check(data)


def _is_usual(data: bytes) -> bool:
    """Whether every opcode is one that torch writes; tuples are neither shared nor deep."""
    if data.count(b"\x86") > _MOST_TUPLES:
        return False
    at = 2
    while (run := _PLAIN.match(data, at)) is not None:
        at = run.end()
        if data[at : at + 1] == b"X":
            size = int.from_bytes(data[at + 1 : at + 5], "little")
            if not _SHORT <= size <= len(data) - at - 5:
                return False
            at += 5 + size
    return data[at : at + 1] == b"."


class _Checker:
    """The same for pickles that somebody has written anew: opcode by opcode, slowly.

    The stack holds how deep a tuple each value is; None is a mark.
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

    def _put(self, place: int, count: int) -> None:
        if not 0 <= place <= count:
            raise ForeignOpcode(f"it asks for room for {place} values")
        self._memo[place] = self._stack[-1] or 0

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
            raise ForeignOpcode(f"it has a {name}, which no plain value needs")

    def _to_mark(self) -> list[int | None]:
        parts: list[int | None] = []
        while (top := self._stack.pop()) is not None:
            parts.append(top)
        return parts


def _depth(parts: list[int | None]) -> int:
    depth = 1 + max((part or 0 for part in parts), default=0)
    if depth > _DEEPEST or len(parts) > _WIDEST:
        raise ForeignOpcode("it has tuples that no dump has")
    return depth
