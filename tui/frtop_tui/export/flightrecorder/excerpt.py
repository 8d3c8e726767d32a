"""Of a long pickle that torch wrote, the part that matters: reading all of it costs ten times more.

Torch writes one entry after the other, each with the same keys in the same order, and tells
each text once. So where an entry begins can be found without reading what is in between.
The excerpt is a pickle of its own and checked like any other. Where a file is not as
expected there is none, or it cannot be read: then the whole is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

SHORT: Final = 32 * 1024
"""Bytes; what is shorter is read as a whole."""
_FEW: Final = 1024
_TRIES: Final = 16_384
"""Entries that are looked into, of all groups together."""
_LONGEST: Final = 64 * 1024
"""Bytes; no entry is longer."""
_NUMBER: Final = rb"(?:K.|M..|J....)"
_LIST: Final = re.compile(rb"X\x07\x00\x00\x00entries(?:q.|r....)\]\((?=\}\()", re.DOTALL)
_TEXT: Final = re.compile(rb"X..\x00\x00", re.DOTALL)


def excerpt(data: bytes, keep: int) -> bytes | None:
    """The same dump with fewer entries, None where that cannot be told without reading it.

    In it are the newest `keep`, those that are not retired, those that tell a text for the
    first time, and of each group the last.
    """
    found = _LIST.search(data)
    if len(data) < SHORT or found is None:
        return None
    start = found.end()
    first, retired = _key(data, start + 2), _named(data, start, b"retired")
    group, p2p = _named(data, start, b"pg_id"), _named(data, start, b"is_p2p")
    if first is None or retired is None or group is None or p2p is None:
        return None
    between = b"u}(" + first
    tail = _tail(data, between, start, keep)
    unfinished = [m.start() for m in re.finditer(re.escape(retired + b"\x89"), data[:tail])]
    if tail <= start or len(unfinished) > _FEW:
        return None
    telling = [m.start() for m in _TEXT.finditer(data, start, tail)]
    wanted = {*telling, *(at for at in unfinished if at >= start)}
    places: dict[bytes, list[int]] = {}
    for sign in re.compile(re.escape(group) + _NUMBER, re.DOTALL).finditer(data, start):
        places.setdefault(sign[0], []).append(sign.start())
    if len(places) > _FEW or len(telling) > 4 * _FEW:
        return None
    tries = iter(range(_TRIES))
    for mine in places.values():
        last = _last(data, mine, p2p + b"\x89", between, tries)
        if last is None:
            return None
        wanted.add(last)
    pieces = _pieces(data, wanted, between, start, tail)
    return b"".join((data[:start], *pieces, data[tail:]))


def _key(data: bytes, at: int) -> bytes | None:
    """How the text told at `at` is called later on."""
    size = int.from_bytes(data[at + 1 : at + 5], "little")
    after = at + 5 + size
    put = data[after : after + 1]
    if data[at : at + 1] != b"X" or size > 64 or put not in (b"q", b"r"):
        return None
    return b"h" + data[after + 1 : after + 2] if put == b"q" else b"j" + data[after + 1 : after + 5]


def _named(data: bytes, start: int, name: bytes) -> bytes | None:
    at = data.find(b"X" + len(name).to_bytes(4, "little") + name, start)
    return _key(data, at) if at >= 0 else None


def _tail(data: bytes, between: bytes, start: int, keep: int) -> int:
    """Where the newest `keep` entries begin."""
    at = len(data)
    for _ in range(keep):
        before = data.rfind(between, start, at)
        if before < 0:
            return start
        at = before
    return at + 1


def _last(
    data: bytes, places: list[int], whole: bytes, between: bytes, tries: Iterator[int]
) -> int | None:
    """Of a group's entries the last that has `whole`: a collective. Else the last one."""
    for at in reversed(places):
        end = data.find(between, at, at + _LONGEST)
        if next(tries, None) is None or (end < 0 and at + _LONGEST < len(data)):
            return None
        if data.find(whole, at, end if end >= 0 else len(data)) >= 0:
            return at
    return places[-1]


def _pieces(
    data: bytes, wanted: set[int], between: bytes, start: int, tail: int
) -> Iterator[bytes]:
    """The entries around these places, in order, each once."""
    reached = start
    for at in sorted(wanted):
        if not reached <= at < tail:
            continue
        before = data.rfind(between, start, at)
        begin = before + 1 if before >= 0 else start
        reached = data.find(between, at) + 1
        yield data[begin:reached]
