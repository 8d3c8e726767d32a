"""Ops of a history one by one, as tests write and read them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from frtop_probe import wire
from frtop_probe.history_columns import pack_rows, unpack


class HistoryRow(NamedTuple):
    """The fields of one op, in the order of `history_columns.FIELDS`."""

    sequence: int
    group: int
    number: int
    signature: int
    site: int
    issued_ns: int
    took_ns: int
    thread: int
    flags: int = 0
    pseudo: int = False
    timeout_ms: int = 0
    issuer: int = 0
    waited_ns: int = 0


def packed(rows: Iterable[HistoryRow]) -> wire.HistoryColumns | None:
    found = tuple(rows)
    return pack_rows(tuple(zip(*found, strict=True))) if found else None


def rows_of(history: wire.History) -> tuple[HistoryRow, ...]:
    if history.columns is None:
        return ()
    return tuple(map(HistoryRow, *unpack(history.columns)))
