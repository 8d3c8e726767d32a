"""How fast counters rise since the reading before."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

MOST: Final = 4096
"""Counters that are remembered: more would be those of processes that have ended."""
_SECOND_NS: Final = 1_000_000_000


class Rates:
    """Remembers counters between readings. A counter that fell has begun anew: no rate."""

    def __init__(self) -> None:
        self._last: dict[Hashable, tuple[int, int]] = {}

    def rise(self, key: Hashable, value: int | None, now_ns: int) -> tuple[int, int] | None:
        """By how much a counter rose, and in how many ns; None at the first time."""
        if value is None:
            self._last.pop(key, None)
            return None
        before = self._last.pop(key, None)
        if len(self._last) >= MOST:
            del self._last[next(iter(self._last))]  # the one that was not asked for the longest
        self._last[key] = now_ns, value
        if before is None or value < before[1] or now_ns <= before[0]:
            return None
        return value - before[1], now_ns - before[0]

    def per_second(
        self, key: Hashable, value: int | None, now_ns: int, *, times: int = 1
    ) -> int | None:
        """The rise in a second, `times` as much."""
        found = self.rise(key, value, now_ns)
        return None if found is None else found[0] * times * _SECOND_NS // found[1]

    def permille(self, key: Hashable, value_ns: int | None, now_ns: int) -> int | None:
        """For a counter of ns: the share of the time in which it ran, 0 to 1000."""
        found = self.rise(key, value_ns, now_ns)
        return None if found is None else min(1000, 1000 * found[0] // found[1])
