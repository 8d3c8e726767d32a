"""Collects garbage while nobody waits for a key.

Nearly all garbage is freed without the collector, except what Textual drew. A full collection
takes half a second where an operator of a large job looks at many screens.
"""

from __future__ import annotations

import gc
import time
from typing import Final

from textual._styles_cache import StylesCache

IDLE_S: Final = 2.0
"""The time without a key after which somebody reads, or is away."""
APART_S: Final = 60.0


def collect_rarely() -> None:
    """Makes collections rare and short: those between keys leave out what exists now."""
    gc.set_threshold(10_000, 20, 60)
    gc.freeze()


class IdleCollector:
    """Collects once a minute, if the user is idle."""

    def __init__(self) -> None:
        self._last_s = time.monotonic()

    def tick(self, idle_s: float) -> None:
        """Collects if it is time; `idle_s` is the time since the last key."""
        now_s = time.monotonic()
        if idle_s < IDLE_S or now_s - self._last_s < APART_S:
            return
        self._last_s = now_s
        # A cache of Textual that keeps what 1,024 widgets last showed, long after they are removed.
        StylesCache.get_inner_outer.cache_clear()
        gc.unfreeze()
        gc.collect()
        gc.freeze()  # so that the next collections are short
