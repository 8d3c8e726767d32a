"""The frames that were received, up to a bound: what `[` and `]` step through. Pure.

At most one frame a second is kept, and each that says something new: another health, another
verdict. Frames share the ranks that did not change.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.naming import same_job

MOST: Final = 300
"""Frames: five minutes where nothing happens."""
MOST_RANKS: Final = 100_000
"""In all frames together, so of large jobs fewer frames are kept. Measured at 4,096 ranks: 0.4 MB a
frame where one rank in ten has news, 2.7 MB where all have."""
APART_NS: Final = 1_000_000_000
REACH_NS: Final = 120_000_000_000
"""So far back frames reach at least where nothing happens: of large jobs they are further apart."""


class ReceivedFrames:
    """The newest frame, and those before it. `shown` is the one of the past on the screen."""

    def __init__(self) -> None:
        self._frames: deque[Frame] = deque()
        self.shown: Frame | None = None

    def __len__(self) -> int:
        return len(self._frames)

    def take(self, frame: Frame) -> None:
        """Keeps a frame. One of another job drops all before it."""
        frames = self._frames
        if frames and frames[-1] is frame:
            return
        if frames and not same_job(frames[-1].job, frame.job):
            frames.clear()
            self.shown = None
        most = max(8, min(MOST, MOST_RANKS // max(1, len(frame.ranks))))
        apart_ns = max(APART_NS, REACH_NS // most)
        if len(frames) > 1 and _is_between(frames[-2], frames[-1], frame, apart_ns):
            frames.pop()
        frames.append(frame)
        while len(frames) > most:
            frames.popleft()

    @property
    def newest(self) -> Frame:
        return self._frames[-1]

    def back(self) -> bool:
        """Goes to the frame before the shown one; False where there is none."""
        at_ns = (self.shown or self.newest).now_ns
        older = [frame for frame in self._frames if frame.now_ns < at_ns]
        if older:
            self.shown = older[-1]
        return bool(older)

    def forward(self) -> bool:
        """Goes to the frame after the shown one, after the last one to now; False when there."""
        if self.shown is None:
            return False
        newer = [frame for frame in self._frames if frame.now_ns > self.shown.now_ns]
        # The last one is now: standing there would be a pause.
        self.shown = newer[0] if len(newer) > 1 else None
        return True

    def position(self) -> tuple[int, int]:
        """Which of how many frames is shown, from 1 on."""
        at_ns = (self.shown or self.newest).now_ns
        return sum(frame.now_ns <= at_ns for frame in self._frames) or 1, len(self._frames)

    def age_s(self) -> float:
        """How far back the shown frame is."""
        if self.shown is None:
            return 0.0
        return max(0.0, (self.newest.now_ns - self.shown.now_ns) / 1e9)


def _is_between(before: Frame, frame: Frame, after: Frame, apart_ns: int) -> bool:
    """Whether a frame says nothing that the one shortly before it has not said."""
    return after.now_ns - before.now_ns <= apart_ns and _says(before) == _says(frame)


def _says(frame: Frame) -> tuple[object, ...]:
    verdicts = tuple((v.kind, v.confidence, v.culprits) for v in frame.verdicts)
    return (frame.health, verdicts, frame.recorded is not None)
