"""Finds the slot of an event, in a ring that may have been made longer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Places(NamedTuple):
    """The slots of a ring: `slots`, and `more` from event `longer_from` on (0: none).

    Even in a damaged ring, all places are below `slots + more`.
    """

    slots: int
    more: int
    longer_from: int

    def of(self, sequence: int) -> int:
        """Returns where an event is, or was."""
        if self.longer_from and sequence >= self.longer_from:
            return self.slots + sequence % self.more
        return sequence % self.slots

    def oldest(self, head: int) -> int:
        """Returns the oldest event that no event up to `head` has overwritten."""
        first = self.longer_from
        if not first or head < first:
            return max(1, head - self.slots + 1)
        if head - self.more + 1 > first:
            return head - self.more + 1
        return max(1, first - self.slots)

    def runs(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yields where events `first` to `last` are, in order: a first place, and how many."""
        while first <= last:
            place = self.of(first)
            if place >= self.slots:
                count = min(last - first + 1, self.slots + self.more - place)
            else:
                until = min(last, self.longer_from - 1) if self.longer_from else last
                count = min(until - first + 1, self.slots - place)
            yield place, count
            first += count
