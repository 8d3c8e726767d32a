"""Computes how fast counters rise between readings."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

MOST: Final = 4096
"""Most counters to keep: any more would belong to ended processes."""
_SECOND_NS: Final = 1_000_000_000


class Rates:
    """Remembers counters between readings. A counter that fell was reset and has no rate."""

    def __init__(self) -> None:
        self._last: dict[Hashable, tuple[int, int]] = {}

    def rise(self, key: Hashable, value: int | None, now_ns: int) -> tuple[int, int] | None:
        """Returns how much a counter rose, and in how many ns; None the first time."""
        if value is None:
            self._last.pop(key, None)
            return None
        before = self._last.pop(key, None)
        if len(self._last) >= MOST:
            del self._last[next(iter(self._last))]  # the least recently used
        self._last[key] = now_ns, value
        if before is None or value < before[1] or now_ns <= before[0]:
            return None
        return value - before[1], now_ns - before[0]

    def per_second(
        self, key: Hashable, value: int | None, now_ns: int, *, times: int = 1
    ) -> int | None:
        """Returns the rise per second, multiplied by `times`."""
        found = self.rise(key, value, now_ns)
        return None if found is None else found[0] * times * _SECOND_NS // found[1]

    def permille(self, key: Hashable, value_ns: int | None, now_ns: int) -> int | None:
        """Returns the share of time in which a counter of ns ran, 0 to 1000."""
        found = self.rise(key, value_ns, now_ns)
        return None if found is None else min(1000, 1000 * found[0] // found[1])
