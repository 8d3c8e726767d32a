"""Which ranks somebody wants to see in detail: those of jobs that are shown, and those asked for.

An agent follows all ranks of its host. What is dear (the rings of others' Flight Recorders, in
memory and time) is only for these.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from typing import Final

LASTING_S: Final = 30.0
"""A screen says every 5 s what it shows."""


class ShownRanks:
    """Remembers for a while what operators said."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing was said yet."""
        self._clock = clock
        self._until: dict[int, float] = {}
        self._all_until = -math.inf

    def note(self, keys: Collection[int] | None, known: Collection[int]) -> None:
        """Takes in what an operator shows or asks for.

        Args:
            keys: of ranks; None for all.
            known: all keys that there are.
        """
        now = self._clock()
        if keys is None:
            self._all_until = now + LASTING_S
            return
        self._until = {key: end for key, end in self._until.items() if end > now}
        self._until |= dict.fromkeys(set(keys).intersection(known), now + LASTING_S)

    def __contains__(self, key: object) -> bool:
        now = self._clock()
        known = self._until.get(key, -math.inf) if isinstance(key, int) else -math.inf
        return now < max(self._all_until, known)
