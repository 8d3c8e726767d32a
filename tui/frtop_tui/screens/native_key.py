"""The key that makes a rank stand still: it acts when it is pressed twice."""

from __future__ import annotations

import time
from typing import Final

from frtop_probe import wire
from frtop_tui.diagnosis.model import JudgedRank

AGAIN_S: Final = 10.0
"""How long a first press holds: as long as its sentence is shown."""
LOST_S: Final = 25.0
"""After this no response is expected: the source gives up earlier, and says so."""


class NativeKey:
    """Which press of a rank's key this is, and whether its stacks are under way."""

    def __init__(self) -> None:
        self._pressed_s = self._asked_s = 0.0
        self.waiting = False
        self._before: wire.NativeStacksResponse | None = None
        """The response there was at the time of asking: any other one is new."""

    def press(self, rank: JudgedRank) -> bool:
        """Whether the stacks are to be taken now; never while they are under way."""
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
        """Whether what was asked for is there now, or is not expected any more; true once."""
        lost = time.monotonic() - self._asked_s > LOST_S
        if not self.waiting or (rank.native is self._before and not lost):
            return False
        self.waiting = False
        return True

    def forget(self) -> None:
        """Goes to another rank: what was asked of this one is not waited for any more."""
        self._pressed_s, self.waiting, self._before = 0.0, False, None
