"""What holds the dumps of several ranks: a page of torch's debug server, or JSON by rank."""

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
MAX_ANSWER: Final = 32 * 1024 * 1024
_HEAD: Final = re.compile(rb"<h[23]>Rank (\d{1,7}): ([^<]{0,2000})</h[23]>\s*", re.ASCII)
_KEY: Final = re.compile(r"(?:rank[_-]?)?(\d{1,7})(?:\.json)?", re.ASCII)
_BEGIN: Final = b"<pre>"
_END: Final = b"</pre>"
_ANSWER: Final = re.compile(rb"status=(\d{1,4})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Part:
    """One rank's dump, as far as the page says whose; `problem` why there is none."""

    values: Any
    rank: int | None = None
    host: str = ""
    problem: str = ""


def is_page(data: bytes) -> bool:
    return data.lstrip()[:1] == b"<"


def parts_of_page(data: bytes) -> Iterator[Part]:
    """Of the debug server's page: a heading for each rank, and what that answered."""
    heads = list(islice(_HEAD.finditer(data), MAX_RANKS))
    for index, head in enumerate(heads):
        until = heads[index + 1].start() if index + 1 < len(heads) else len(data)
        rank, host = int(head[1]), _host(head[2].decode(errors="replace"))
        begin = data.find(_BEGIN, head.end(), until)
        end = data.find(_END, begin, until)
        if begin != head.end() or end < 0:
            answer = _ANSWER.search(data, head.end(), min(until, head.end() + 200))
            status = f" (status {int(answer[1])})" if answer else ""
            yield Part(None, rank, host, f"it did not answer the debug server{status}")
            continue
        text = data[begin + len(_BEGIN) : end]
        values = _decoded(text) if len(text) <= MAX_ANSWER else None
        yield Part(values, rank, host, "" if values is not None else "its answer is no dump")


def parts_of(values: Any) -> list[Part]:
    """The dumps in what a file says: one, or one for each rank."""
    if isinstance(values, dict) and KEYS.isdisjoint(values):
        found = [_part(key, inner) for key, inner in list(values.items())[:MAX_RANKS]]
    elif isinstance(values, list) and any(map(_is_dump, values[:1])):
        found = [_part(str(index), inner) for index, inner in enumerate(values[:MAX_RANKS])]
    else:
        return [Part(values, _told_rank(values))]
    dumps = [part for part in found if part is not None]
    return dumps or [Part(values)]


def _part(key: object, inner: Any) -> Part | None:
    if isinstance(inner, str) and inner[:1] == "{":
        inner = _decoded(inner.encode(errors="replace"))
    named = _KEY.fullmatch(key) if isinstance(key, str) else None
    if not _is_dump(inner) or named is None:
        return None
    rank = _told_rank(inner)
    return Part(inner, int(named[1]) if rank is None else rank)


def _is_dump(values: Any) -> bool:
    """Not an entry of torch up to 2.2, whose dumps are lists of these."""
    return isinstance(values, Mapping) and not KEYS.isdisjoint(values)


def _told_rank(values: Any) -> int | None:
    rank = values.get("rank") if isinstance(values, dict) else None
    return rank if type(rank) is int and 0 <= rank < MAX_RANKS else None


def _decoded(text: bytes) -> Any:
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
