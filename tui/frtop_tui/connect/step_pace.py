"""Predicts a step that all ranks reach soon, so that all of them can start something in it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Final

from frtop_tui.diagnosis.model import Frame

LEAD_NS: Final = 2_000_000_000
"""An order needs at most so long until it is with all ranks."""
MOST_SEEN: Final = 16


class StepPace:
    """Measures how long a step takes, on the first rank of each frame."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, int]] = deque(maxlen=MOST_SEEN)
        """Numbers of steps, and when each ended on the clock of that rank's host."""

    def update(self, frame: Frame) -> None:
        """Notes the step that a frame shows, if it is a new one."""
        status = next((view.status for view in frame.ranks.values()), None)
        if status is None or not status.step:
            return
        if self._seen and status.step < self._seen[-1][0]:
            self._seen.clear()  # another job, or the same one was started again
        if not self._seen or status.step > self._seen[-1][0]:
            self._seen.append((status.step, status.step_ns))

    @property
    def is_unknown(self) -> bool:
        """Whether only one step was seen: two are needed to know how long one takes."""
        return len(self._seen) == 1

    def step_ahead(self, frame: Frame, ranks: Iterable[int]) -> int:
        """The number of a step that no rank reaches within `LEAD_NS`.

        Returns 0 where nobody can say: the time of a step is not known, steps take long, or the
        ranks count their steps so differently that no step is the same for all.
        """
        views = (frame.ranks.get(rank) for rank in ranks)
        steps = [view.status.step for view in views if view is not None and view.status is not None]
        if len(self._seen) < 2 or not steps:
            return 0
        (first, first_ns), (last, last_ns) = self._seen[0], self._seen[-1]
        each = (last_ns - first_ns) / (last - first)
        if not 0 < each < LEAD_NS / 2:
            return 0
        ahead = math.ceil(LEAD_NS / each)
        return max(steps) + 1 + ahead if max(steps) - min(steps) <= ahead else 0
