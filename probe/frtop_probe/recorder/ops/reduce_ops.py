"""Which reduce ops the program calls, as torch's objects say: too slow to ask in the hook."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from frtop_probe.recorder.own_ring import OwnRing
from frtop_probe.ring import layout

MAX_DECODED: Final = 4096
"""Most reduce ops that wait for the next tick, the newest ones: about 16,000 per second are
decoded. Each takes 2.5 µs of the GIL, in addition to the 10 µs of the hook for the op itself."""
DECODING_S: Final = 0.05
"""Longest decoding in one tick: each decoding gives up the GIL and may wait to get it back, and
the next heartbeat must not be late."""
PREMUL: Final = 9
"""Torch numbers reduce ops from 0 (sum) to 8 (premul_sum), a slot from 1."""
UNTOLD: Final = "reduce ops are not told apart: this torch does not say which they are"


class ReduceOps:
    """Torch's objects until the next heartbeat, when the recorder's thread asks them.

    Args:
        ring: of the ring.
        note: writes a note into the ring, once.
    """

    def __init__(self, ring: OwnRing, note: Callable[[str], object]) -> None:
        self.raw: deque[tuple[int, Any]] = deque(maxlen=MAX_DECODED)
        """Sequence numbers of ops, and their reduce ops."""
        self._ring = ring
        self._note = note

    def decode(self) -> None:
        """Writes them into the slots of their ops.

        Oldest first, so that consecutive ops become known consecutively.
        """
        ring = self._ring
        words = ring.words
        deadline = time.monotonic() + DECODING_S
        while self.raw and time.monotonic() < deadline:
            try:
                sequence, reduce = self.raw.popleft()
            except IndexError:  # `stop` has cleared them
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
