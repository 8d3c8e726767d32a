"""Which step ranks will be in soon, so that all of them can begin something in the same one."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Final

from frtop_tui.diagnosis.model import Frame

LEAD_NS: Final = 2_000_000_000
"""How long an order may take to all ranks."""
MOST_SEEN: Final = 16


class StepPace:
    """How long a step takes, by the rank that comes first in each frame."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, int]] = deque(maxlen=MOST_SEEN)
        """Steps and when they ended, on the clock of that rank's host."""

    def update(self, frame: Frame) -> None:
        """Takes what a frame tells."""
        status = next((view.status for view in frame.ranks.values()), None)
        if status is None or not status.step:
            return
        if self._seen and status.step < self._seen[-1][0]:
            self._seen.clear()  # another job, or it has started again
        if not self._seen or status.step > self._seen[-1][0]:
            self._seen.append((status.step, status.step_ns))

    @property
    def is_unknown(self) -> bool:
        """Whether there are steps, but not yet two of them."""
        return len(self._seen) == 1

    def step_ahead(self, frame: Frame, ranks: Iterable[int]) -> int:
        """A step that all reach after `LEAD_NS`; 0 where that is not known, or steps are long.

        Ranks whose steps are far from each other count by themselves.
        """
        views = (frame.ranks.get(rank) for rank in ranks)
        steps = [view.status.step for view in views if view is not None and view.status is not None]
        if len(self._seen) < 2 or not steps:
            return 0
        (first, begin), (last, end) = self._seen[0], self._seen[-1]
        each = (end - begin) / (last - first)
        if not 0 < each < LEAD_NS / 2:
            return 0
        ahead = math.ceil(LEAD_NS / each)
        return max(steps) + 1 + ahead if max(steps) - min(steps) <= ahead else 0
