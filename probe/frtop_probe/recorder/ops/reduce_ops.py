"""Reads reduce ops from torch's objects; in the hook that would be too slow."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from frtop_probe.recorder.own_ring import OwnRing
from frtop_probe.ring import layout

MAX_DECODED: Final = 4096
"""Most reduce ops waiting for the next tick; older ones are dropped. So about 16,000 per second
are decoded, at 2.5 µs each with the GIL."""
DECODING_S: Final = 0.05
"""Longest decoding per tick: each decoding gives up the GIL and may wait to get it back, and
the next heartbeat must not be late."""
PREMUL: Final = 9
"""Torch numbers reduce ops from 0 (sum) to 8 (premul_sum); a slot numbers them from 1."""
UNTOLD: Final = "reduce ops are unknown: this torch does not show them"


class ReduceOps:
    """Keeps torch's objects until the recorder's thread reads them at the next heartbeat.

    `note` writes a note into the ring, once.
    """

    def __init__(self, ring: OwnRing, note: Callable[[str], object]) -> None:
        self.raw: deque[tuple[int, Any]] = deque(maxlen=MAX_DECODED)
        """Sequence numbers of ops, and their reduce ops."""
        self._ring = ring
        self._note = note

    def decode(self) -> None:
        """Writes the reduce ops into the slots of their ops, oldest first."""
        ring = self._ring
        words = ring.words
        deadline = time.monotonic() + DECODING_S
        while self.raw and time.monotonic() < deadline:
            try:
                sequence, reduce = self.raw.popleft()
            except IndexError:  # `stop` cleared them
                return
            tell = getattr(reduce, "op", None)
            number = 0 if tell is None else int(tell()) + 1
            if tell is None:
                self._note(UNTOLD)
            if not 0 < number <= PREMUL:
                number = len(layout.REDUCE_OPS) - 1
            at = ring.slot_at(sequence)
            if words[at // 8] == sequence:
                ring.map[at + layout.SLOT_REDUCE] = number
