"""Groups beyond those that have a row in the ring: a program may make new ones all the time.

Their counts come from the slots, so they are complete for who reads from the group's first op on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from frtop_probe.ring import bulk_read
from frtop_probe.ring.layout import LONGEST
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
        self._missed = 0
        """The newest group when ops were missed."""

    @property
    def ops(self) -> int:
        return self._dropped + sum(row.number + row.p2p for row in self._rows.values())

    def is_exact(self, group: int) -> bool:
        """Whether no op of a group can have been missed."""
        return not self._ring.shape.groups <= group <= self._missed

    def rows(self) -> Iterable[GroupRow]:
        """Reads what is new, if there are such groups; returns the row that each would have.

        Those of groups that were dropped since the last call are the last ones.
        """
        ring, rows, first = self._ring, self._rows, self._ring.shape.groups
        head, begin = ring.head, self._next
        self._next = head + 1
        if ring.newest_group < first:
            return ()
        oldest = max(head - _MOST, ring.oldest(head), 1)
        if begin < oldest:
            self._missed = ring.newest_group
        begin = max(begin - _AGAIN, oldest)
        for slots in bulk_read.slots(ring, begin, head):
            for sequence, group, number, what in zip(
                slots.sequence, slots.group, slots.number, slots.what, strict=True
            ):
                known = rows.get(group)
                if known is None:
                    if group < first or group not in ring.groups:
                        continue
                    known = GroupRow(group, 0, 0, 0)
                if not 0 <= number < LONGEST:
                    continue
                is_collective = bulk_read.is_collective_half(what)
                rows[group] = GroupRow(
                    group,
                    max(known.number, number * is_collective),
                    max(known.p2p, number * (not is_collective)),
                    max(known.sequence, sequence),
                )
        found = list(rows.values())
        for row in found:
            if row.group not in ring.groups:
                del rows[row.group]
                self._dropped += row.number + row.p2p
        return found
