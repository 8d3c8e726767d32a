"""Detects that a job makes no progress, and schedules snapshots of it. Pure: takes `now`.

A job that its launcher kills while it hangs leaves no time for snapshots, so its black box
needs earlier ones. They are taken in pairs, because one alone does not show whether anything
moves, and ever less often, because they show the same.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

QUIET_NS: Final = 10_000_000_000
"""Time without progress after which a job counts as stalled."""
PAIR_NS: Final = 2_500_000_000
"""Time between the two snapshots of a pair."""
MAX_WAIT_NS: Final = 300_000_000_000
"""The longest time between pairs."""


class StallDetector:
    """Follows the progress of one job's ranks on this host."""

    def __init__(self) -> None:
        self._progress: Hashable = None
        self._since_ns = 0
        self._ended_ns = 0
        self._due_ns = 0
        self._first = True
        self._wait_ns = QUIET_NS

    def update(self, progress: Hashable, now_ns: int) -> bool:
        """Takes the current progress; returns whether a snapshot is due.

        `progress` is any value that changes when something has moved.
        """
        if progress != self._progress:
            if self.is_stalled(now_ns):
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
            self._wait_ns = min(2 * self._wait_ns, MAX_WAIT_NS)
        self._first = not self._first
        return True

    def is_stalled(self, now_ns: int) -> bool:
        """Whether nothing has moved for `QUIET_NS`."""
        return self._progress is not None and now_ns - self._since_ns >= QUIET_NS

    def over_for_ns(self, now_ns: int) -> int:
        """Time since the last stall ended; 0 during a stall."""
        return 0 if self.is_stalled(now_ns) else now_ns - self._ended_ns
