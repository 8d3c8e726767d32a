"""The key that makes a rank stand still: it acts when pressed twice."""

from __future__ import annotations

import time
from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis.model import JudgedRank

AGAIN_S: Final = 10.0
"""A first press counts as long as its notification is shown."""
LOST_S: Final = 25.0
"""No response arrives after this: the source gives up earlier, and says so."""


class NativeKey:
    """Counts presses, and knows whether stacks are being taken."""

    def __init__(self) -> None:
        self._pressed_s = self._asked_s = 0.0
        self.waiting = False
        self._before: wire.NativeStacksResponse | None = None
        """The response at the time of asking: any other is new."""

    def press(self, rank: JudgedRank) -> bool:
        """Whether to take stacks now; never while some are being taken."""
        if self.waiting:
            return False
        now_s = time.monotonic()
        if not self._pressed_s or now_s - self._pressed_s >= AGAIN_S:
            self._pressed_s = now_s
            return False
        self._pressed_s, self._asked_s = 0.0, now_s
        self.waiting, self._before = True, rank.native
        return True

    def arrived(self, rank: JudgedRank) -> bool:
        """Whether the response has arrived, or is no longer expected; true once."""
        lost = time.monotonic() - self._asked_s > LOST_S
        if not self.waiting or (rank.native is self._before and not lost):
            return False
        self.waiting = False
        return True

    def forget(self) -> None:
        """Stops waiting for this rank's response: another rank is shown."""
        self._pressed_s, self.waiting, self._before = 0.0, False, None
