"""Cuts unneeded entries out of a long pickle that torch wrote: ten times faster to read.

torch writes the entries one after the other, each with the same keys in the same order, and each
text and each line of a stack once. So we can find entries without unpickling. We check the trimmed
pickle like any other. If a file is not as expected, we read all of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

SHORT: Final = 32 * 1024
"""Bytes; we read a shorter pickle completely."""
_MAX_FOUND: Final = 1024
"""Groups, and unfinished entries; beyond that, trimming does not pay."""
_MAX_SEARCHED: Final = 16_384
"""Entries to search, all groups together."""
_MAX_ENTRY: Final = 64 * 1024
"""Bytes of one entry."""
_NUMBER: Final = rb"(?:K.|M..|J....)"
_LIST: Final = re.compile(rb"X\x07\x00\x00\x00entries(?:q.|r....)\]\((?=\}\()", re.DOTALL)
_TEXT: Final = re.compile(rb"X..\x00\x00", re.DOTALL)
_LINE_END: Final = re.compile(rb"u(?:q.|r..[\x00-\x0f]\x00)", re.DOTALL)
"""Later entries refer to a text, and to a line of a stack. One pattern for both takes 15 times as
long: it has no first byte to search for."""


def trim_pickle(data: bytes, keep: int) -> bytes | None:
    """The same dump with fewer entries; None if they cannot be found without unpickling.

    It keeps the newest `keep` entries, those not retired, those that hold the first
    occurrence of a text or a line, and the last of each group.
    """
    found = _LIST.search(data)
    if len(data) < SHORT or found is None:
        return None
    start = found.end()
    first, retired = _memo_get(data, start + 2), _key(data, start, b"retired")
    group, p2p = _key(data, start, b"pg_id"), _key(data, start, b"is_p2p")
    if first is None or retired is None or group is None or p2p is None:
        return None
    between = b"u}(" + first
    tail = _tail(data, between, start, keep)
    unfinished = [m.start() for m in re.finditer(re.escape(retired + b"\x89"), data[:tail])]
    if tail <= start or len(unfinished) > _MAX_FOUND:
        return None
    new = [m.start() for one in (_TEXT, _LINE_END) for m in one.finditer(data, start, tail)]
    wanted = {*new, *(at for at in unfinished if at >= start)}
    groups: dict[bytes, list[int]] = {}
    for match in re.compile(re.escape(group) + _NUMBER, re.DOTALL).finditer(data, start):
        groups.setdefault(match[0], []).append(match.start())
    if len(groups) > _MAX_FOUND or len(new) > 4 * _MAX_FOUND:
        return None
    budget = iter(range(_MAX_SEARCHED))
    for offsets in groups.values():
        last = _last(data, offsets, p2p + b"\x89", between, budget)
        if last is None:
            return None
        wanted.add(last)
    pieces = _pieces(data, wanted, between, start, tail)
    return b"".join((data[:start], *pieces, data[tail:]))


def _memo_get(data: bytes, at: int) -> bytes | None:
    """The opcode that repeats the text written at `at`."""
    size = int.from_bytes(data[at + 1 : at + 5], "little")
    after = at + 5 + size
    put = data[after : after + 1]
    if data[at : at + 1] != b"X" or size > 64 or put not in (b"q", b"r"):
        return None
    return b"h" + data[after + 1 : after + 2] if put == b"q" else b"j" + data[after + 1 : after + 5]


def _key(data: bytes, start: int, name: bytes) -> bytes | None:
    """The opcode that repeats the key `name`."""
    at = data.find(b"X" + len(name).to_bytes(4, "little") + name, start)
    return _memo_get(data, at) if at >= 0 else None


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
    data: bytes, offsets: list[int], collective: bytes, between: bytes, budget: Iterator[int]
) -> int | None:
    """The last of a group's entries that is marked as a collective; or else the last."""
    for at in reversed(offsets):
        end = data.find(between, at, at + _MAX_ENTRY)
        if next(budget, None) is None or (end < 0 and at + _MAX_ENTRY < len(data)):
            return None
        if data.find(collective, at, end if end >= 0 else len(data)) >= 0:
            return at
    return offsets[-1]


def _pieces(
    data: bytes, wanted: set[int], between: bytes, start: int, tail: int
) -> Iterator[bytes]:
    """The entries around these offsets, in order, each once."""
    reached = start
    for at in sorted(wanted):
        if not reached <= at < tail:
            continue
        before = data.rfind(between, start, at)
        begin = before + 1 if before >= 0 else start
        reached = data.find(between, at) + 1
        yield data[begin:reached]
