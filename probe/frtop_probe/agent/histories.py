"""All ops that a rank's ring still has, for captures and black boxes; repeats are sent once."""

from __future__ import annotations

import asyncio
from typing import Final

from frtop_probe import wire
from frtop_probe.agent.ring_rank import RingRank
from frtop_probe.agent.ring_view import RingView
from frtop_probe.ring import bulk_read
from frtop_probe.ring.layout import Event, StatusCell
from frtop_probe.ring.reader import EventRow, OpKey

_LONGEST_NS: Final = 2**62
"""Times in a ring may be anything; the difference of two must fit the wire."""
_AT_ONCE: Final = 512
"""Rows between which the tick and other requests get their turn."""


async def history(rank: RingRank, limit: int = 0) -> wire.History:
    """The newest `limit` ops of a rank (0: all), also of one that has ended."""
    rank.ring.refresh()
    builder = HistoryBuilder(rank.view)
    rows, lost = rank.ring.events(0, limit or rank.ring.shape.slots)
    for index, row in enumerate(rows):
        builder.add(row)
        if index % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)
    return builder.build(lost)


def excerpt(view: RingView, group: int, first: int, last: int) -> wire.History:
    """The collectives of one group numbered `first` to `last` that the ring still has."""
    ring = view.ring
    ring.refresh()
    builder = HistoryBuilder(view)
    head = ring.cell(StatusCell.HEAD)
    oldest = max(1, head - ring.shape.slots + 1)
    for index, slot in enumerate(bulk_read.words(ring, oldest, head)):
        _, _, number, what, party, _, _, _ = slot
        if first <= number <= last and bulk_read.group_of(what) == group:
            row = ring.event(oldest + index) if bulk_read.is_collective(party) else None
            if row is not None and (row.group, row.number) == (group, number):
                builder.add(row)
    return builder.build(0)


class HistoryBuilder:
    """Builds a `wire.History`, with tables for signatures and sites."""

    def __init__(self, view: RingView) -> None:
        self._view = view
        self._signatures: dict[tuple[OpKey, str | None], int] = {}
        self._signature_table: list[wire.Signature] = []
        self._sites: dict[int, int] = {}
        self._site_table: list[wire.Site] = []
        self._rows: list[wire.HistoryRow] = []

    def add(self, row: EventRow) -> None:
        """Adds an op; ignores steps and notes."""
        if row.event not in (Event.OP, Event.PSEUDO):
            return
        took = 0
        if row.done_ns:
            took = min(max(1, abs(row.done_ns) - row.issued_ns), _LONGEST_NS)
            took *= 1 if row.done_ns > 0 else -1
        self._rows.append(
            wire.HistoryRow(
                row.sequence,
                row.group,
                row.number,
                self._signature(row),
                self._site(row),
                row.issued_ns,
                took,
                row.thread,
                int(row.flags),
                row.event is Event.PSEUDO,
                row.timeout_ms,
            )
        )

    def build(self, lost: int) -> wire.History:
        return wire.History(
            tuple(self._signature_table), tuple(self._site_table), tuple(self._rows), lost
        )

    def _signature(self, row: EventRow) -> int:
        key = (row.key, row.reduce)
        number = self._signatures.get(key)
        if number is None:
            found = self._view.op(row).signature
            if found is not None:
                self._signature_table.append(found)
            number = self._signatures[key] = len(self._signature_table) if found else 0
        return number

    def _site(self, row: EventRow) -> int:
        number = self._sites.get(row.site)
        if number is None:
            found = self._view.op(row).site
            if found is not None:
                self._site_table.append(found)
            number = self._sites[row.site] = len(self._site_table) if found else 0
        return number
