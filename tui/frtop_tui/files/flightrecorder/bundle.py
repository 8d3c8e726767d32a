"""Files with dumps of several ranks: a page of torch's debug server, or JSON by rank."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from frtop_probe.ring.rank_ranges import MAX_RANKS

KEYS: Final = frozenset({"entries", "pg_config", "pg_status"})
"""A dump has at least one of these."""
MAX_RESPONSE: Final = 32 * 1024 * 1024
_HEADING: Final = re.compile(rb"<h[23]>Rank (\d{1,7}): ([^<]{0,2000})</h[23]>\s*", re.ASCII)
_KEY: Final = re.compile(r"(?:rank[_-]?)?(\d{1,7})(?:\.json)?", re.ASCII)
_BEGIN: Final = b"<pre>"
_END: Final = b"</pre>"
_STATUS: Final = re.compile(rb"status=(\d{1,4})", re.ASCII)


@dataclass(frozen=True, slots=True)
class RawDump:
    """One dump as plain values, with its rank and host if the file names them.

    `problem` says why there is no dump.
    """

    values: Any
    rank: int | None = None
    host: str = ""
    problem: str = ""


def is_page(data: bytes) -> bool:
    return data.lstrip()[:1] == b"<"


def dumps_in_page(data: bytes) -> Iterator[RawDump]:
    """The dumps in the debug server's page, which has a heading and a response per rank."""
    headings = list(islice(_HEADING.finditer(data), MAX_RANKS))
    for index, heading in enumerate(headings):
        until = headings[index + 1].start() if index + 1 < len(headings) else len(data)
        rank, host = int(heading[1]), _host(heading[2].decode(errors="replace"))
        begin = data.find(_BEGIN, heading.end(), until)
        end = data.find(_END, begin, until)
        if begin != heading.end() or end < 0:
            status = _STATUS.search(data, heading.end(), min(until, heading.end() + 200))
            shown = f" (status {int(status[1])})" if status else ""
            yield RawDump(None, rank, host, f"it did not answer the debug server{shown}")
            continue
        text = data[begin + len(_BEGIN) : end]
        values = _decode(text) if len(text) <= MAX_RESPONSE else None
        yield RawDump(values, rank, host, "" if values is not None else "its answer is no dump")


def dumps_in_values(values: Any) -> list[RawDump]:
    """The dumps in the values of a file: one, or one per rank."""
    if isinstance(values, dict) and KEYS.isdisjoint(values):
        found = [_dump(key, inner) for key, inner in list(values.items())[:MAX_RANKS]]
    elif isinstance(values, list) and any(map(_is_dump, values[:1])):
        found = [_dump(str(index), inner) for index, inner in enumerate(values[:MAX_RANKS])]
    else:
        return [RawDump(values, _rank_field(values))]
    dumps = [dump for dump in found if dump is not None]
    return dumps or [RawDump(values)]


def _dump(key: object, inner: Any) -> RawDump | None:
    if isinstance(inner, str) and inner[:1] == "{":
        inner = _decode(inner.encode(errors="replace"))
    name = _KEY.fullmatch(key) if isinstance(key, str) else None
    if not _is_dump(inner) or name is None:
        return None
    rank = _rank_field(inner)
    return RawDump(inner, int(name[1]) if rank is None else rank)


def _is_dump(values: Any) -> bool:
    return isinstance(values, Mapping) and not KEYS.isdisjoint(values)


def _rank_field(values: Any) -> int | None:
    rank = values.get("rank") if isinstance(values, dict) else None
    return rank if type(rank) is int and 0 <= rank < MAX_RANKS else None


def _decode(text: bytes) -> Any:
    if b"&quot;" in text or b"&#34;" in text:
        text = html.unescape(text.decode(errors="replace")).encode()
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _host(address: str) -> str:
    try:
        return urlsplit(address.strip()).hostname or ""
    except ValueError:
        return ""
