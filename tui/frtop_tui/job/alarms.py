"""Moments at which something changes although nobody says anything: a beat is overdue, say.

Whoever is rung is looked at anew, so to be rung too early or twice harms nobody. What
matters is that nothing changes by time alone without an alarm.
"""

from __future__ import annotations

from heapq import heappop, heappush


class Alarms:
    """At most one alarm for each key; asking costs what rings, not what is set."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []
        self._set: dict[int, int] = {}

    def set(self, key: int, at_ns: int) -> None:
        """Rings `key` at `at_ns`, or before if that was said already."""
        known = self._set.get(key)
        if known is None or at_ns < known:
            self._set[key] = at_ns
            heappush(self._heap, (at_ns, key))

    def rung(self, now_ns: int) -> list[int]:
        """Those whose moment has come; they have to be set again."""
        found = []
        while self._heap and self._heap[0][0] <= now_ns:
            at_ns, key = heappop(self._heap)
            if self._set.get(key) == at_ns:
                del self._set[key]
                found.append(key)
        return found

    def clear(self) -> None:
        self._heap.clear()
        self._set.clear()
