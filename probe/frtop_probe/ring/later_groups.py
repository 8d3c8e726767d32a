"""Groups beyond those that have a row in the ring: a program may make new ones all the time.

Their counts come from the slots, so they are complete for who reads from the group's first op on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from frtop_probe.ring import bulk_read
from frtop_probe.ring.layout import StatusCell
from frtop_probe.ring.reader import GroupRow, Ring

_AGAIN: Final = 256
"""Newest slots that are read again: threads may have been writing them."""
_MOST: Final = 16_384
"""Slots read at once, about 50 ms of a core."""


class LaterGroups:
    """The last ops of groups that have no row."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._next = 1
        self._rows: dict[int, GroupRow] = {}
        self._dropped = 0
        """Ops of groups that were dropped."""

    @property
    def ops(self) -> int:
        return self._dropped + sum(row.number + row.p2p for row in self._rows.values())

    def rows(self) -> Iterable[GroupRow]:
        """Reads what is new, if there are such groups; returns the row that each would have."""
        ring, rows, first = self._ring, self._rows, self._ring.shape.groups
        if max(ring.groups, default=0) < first:
            return ()
        head = ring.cell(StatusCell.HEAD)
        begin = max(self._next - _AGAIN, head - _MOST, ring.oldest(head), 1)
        for slots in bulk_read.slots(ring, begin, head):
            for sequence, group, number, what in zip(
                slots.sequence, slots.group, slots.number, slots.what, strict=True
            ):
                if group < first or group not in ring.groups:
                    continue
                known = rows.get(group) or GroupRow(group, 0, 0, 0)
                is_collective = bulk_read.is_collective_half(what)
                rows[group] = GroupRow(
                    group,
                    max(known.number, number * is_collective),
                    max(known.p2p, number * (not is_collective)),
                    max(known.sequence, sequence),
                )
        self._next = head + 1
        for group in rows.keys() & ring.dropped:
            row = rows.pop(group)
            self._dropped += row.number + row.p2p
        return rows.values()
