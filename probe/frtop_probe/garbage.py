"""Frees memory once a minute: of an agent, and of an operator while nobody waits for a key.

Nearly all garbage is freed without the collector, except what Textual drew. A full collection
takes half a second where an operator of a large job looks at many screens.
"""

from __future__ import annotations

import ctypes
import gc
import math
import time
from collections.abc import Callable
from typing import Final

IDLE_S: Final = 2.0
"""The time without a key after which somebody reads, or is away."""
APART_S: Final = 60.0
_TRIM: Final[Callable[[int], int] | None] = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""Only glibc has it."""


def collect_rarely() -> None:
    """Makes collections rare and short: those between keys leave out what exists now."""
    gc.set_threshold(10_000, 20, 60)
    gc.freeze()


class Collector:
    """Collects once a minute, and returns to the system what malloc keeps.

    malloc keeps pages for each thread: several MiB, which grow for hours, where threads take turns.
    """

    def __init__(self, before: Callable[[], object] = lambda: None) -> None:
        """`before` is called first, to let go of what is no longer needed."""
        self._before = before
        self._last_s = time.monotonic()

    def tick(self, idle_s: float = math.inf) -> None:
        """Collects if it is time; `idle_s` is the time since the last key."""
        now_s = time.monotonic()
        if idle_s < IDLE_S or now_s - self._last_s < APART_S:
            return
        self._last_s = now_s
        self._before()
        gc.unfreeze()
        gc.collect()
        gc.freeze()  # so that the next collections are short
        if _TRIM is not None:
            _TRIM(0)
