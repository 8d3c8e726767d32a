"""The last frames received, which `[` and `]` step through. Pure.

It keeps one frame per second, and each with a new health or verdict. Frames share unchanged ranks.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.naming import same_job

MOST: Final = 300
"""Frames: five minutes where nothing happens."""
MOST_RANKS: Final = 100_000
"""In all frames together: large jobs have fewer frames. Measured at 4,096 ranks: 0.4 MB a frame if
one rank in ten has news, 2.7 MB if all have."""
APART_NS: Final = 1_000_000_000
REACH_NS: Final = 120_000_000_000
"""Frames reach back at least this far if nothing happens: in large jobs they are further apart."""


class ReceivedFrames:
    """The newest frame and those before it; `shown` is the earlier one on the screen, if any."""

    def __init__(self) -> None:
        self._frames: deque[Frame] = deque()
        self.shown: Frame | None = None

    def __len__(self) -> int:
        return len(self._frames)

    def take(self, frame: Frame) -> None:
        """Keeps a frame; a frame of another job drops all before it."""
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
        """Goes to the frame before the shown one; False if there is none."""
        at_ns = (self.shown or self.newest).now_ns
        older = [frame for frame in self._frames if frame.now_ns < at_ns]
        if older:
            self.shown = older[-1]
        return bool(older)

    def forward(self) -> bool:
        """Goes to the next frame, after the last one to live; False if already there."""
        if self.shown is None:
            return False
        newer = [frame for frame in self._frames if frame.now_ns > self.shown.now_ns]
        # The last one is live: staying on it would be a pause.
        self.shown = newer[0] if len(newer) > 1 else None
        return True

    def position(self) -> tuple[int, int]:
        """The number of the shown frame, from 1, and how many there are."""
        at_ns = (self.shown or self.newest).now_ns
        return sum(frame.now_ns <= at_ns for frame in self._frames) or 1, len(self._frames)

    def age_s(self) -> float:
        """How far back the shown frame is."""
        if self.shown is None:
            return 0.0
        return max(0.0, (self.newest.now_ns - self.shown.now_ns) / 1e9)


def _is_between(before: Frame, frame: Frame, after: Frame, apart_ns: int) -> bool:
    """Whether a frame says nothing new after one shortly before it."""
    return after.now_ns - before.now_ns <= apart_ns and _says(before) == _says(frame)


def _says(frame: Frame) -> tuple[object, ...]:
    verdicts = tuple((v.kind, v.confidence, v.culprits) for v in frame.verdicts)
    return (frame.health, verdicts, frame.recorded is not None)
