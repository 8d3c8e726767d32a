"""Frames given beforehand: the screens without a job, for tests and pictures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.naming import JobKey


class ScriptedSource:
    """Gives its frames one after the other when told to, and remembers every wish."""

    def __init__(self, frames: Sequence[Frame]) -> None:
        self._frames = list(frames)
        self._index = 0
        self.watched: list[tuple[int, ...]] = []
        self.dumped: list[tuple[int, ...]] = []
        self.inspected: list[int] = []
        self.saved: list[tuple[int, int, Path]] = []
        self.captured: list[tuple[Path, bool]] = []
        self.chosen: list[JobKey | None] = []
        self.closed = False

    def frame(self) -> Frame:
        return self._frames[self._index]

    def advance(self) -> None:
        """On to the next frame; the last one stays."""
        self._index = min(self._index + 1, len(self._frames) - 1)

    def give(self, frame: Frame) -> None:
        """Puts a frame at the end and goes there."""
        self._frames.append(frame)
        self._index = len(self._frames) - 1

    def watch(self, ranks: Iterable[int]) -> None:
        self.watched.append(tuple(ranks))

    def dump(self, ranks: Iterable[int]) -> None:
        self.dumped.append(tuple(ranks))

    def inspect(self, rank: int) -> None:
        self.inspected.append(rank)

    def save(self, rank: int, sequence: int, path: Path) -> None:
        self.saved.append((rank, sequence, path))

    def capture(self, path: Path, *, automatic: bool = False) -> None:
        self.captured.append((path, automatic))

    def choose(self, job: JobKey | None) -> None:
        self.chosen.append(job)

    def close(self) -> None:
        self.closed = True
