"""When a job stands still, and when to look at it then. Pure: `now` is an argument.

A job that its launcher kills while it hangs leaves no time to look: whoever wants a black
box of it must have looked before. Looks come in pairs, since one alone does not tell
whether anything moves; ever more seldom, since the same is seen again and again.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

QUIET_NS: Final = 10_000_000_000
PAIR_NS: Final = 2_500_000_000
SELDOM_NS: Final = 300_000_000_000
"""The longest time between pairs."""


class Standstill:
    """The progress of one job, as one agent sees it."""

    def __init__(self) -> None:
        self._progress: Hashable = None
        self._since_ns = 0
        self._ended_ns = 0
        self._due_ns = 0
        self._first = True
        self._wait_ns = QUIET_NS

    def due(self, progress: Hashable, now_ns: int) -> bool:
        """Whether to look now. `progress` differs when something has moved."""
        if progress != self._progress:
            if self.stands(now_ns):
                self._ended_ns = now_ns
            self._progress = progress
            self._since_ns = now_ns
            self._due_ns = now_ns + QUIET_NS
            self._first, self._wait_ns = True, QUIET_NS
            return False
        if now_ns < self._due_ns:
            return False
        if self._first:
            self._due_ns = now_ns + PAIR_NS
        else:
            self._due_ns += self._wait_ns - PAIR_NS
            self._wait_ns = min(2 * self._wait_ns, SELDOM_NS)
        self._first = not self._first
        return True

    def stands(self, now_ns: int) -> bool:
        """Whether nothing has moved for so long that it is out of the ordinary."""
        return self._progress is not None and now_ns - self._since_ns >= QUIET_NS

    def over_for_ns(self, now_ns: int) -> int:
        """How long ago the last standstill ended; 0 while there is one."""
        return 0 if self.stands(now_ns) else now_ns - self._ended_ns
