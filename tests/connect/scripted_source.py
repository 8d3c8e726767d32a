"""A source that shows given frames and records every command."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from frtop_probe import wire
from frtop_tui.connect.followers import follower_kinds
from frtop_tui.connect.source import Asked, Source
from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.naming import JobKey
from frtop_tui.statistics.wanted import StatisticsWanted


class ScriptedSource(Source):
    """In the place of a live job, for tests, pictures and benchmarks."""

    def __init__(self, frames: Sequence[Frame]) -> None:
        self._frames = list(frames)
        self._index = 0
        self.watched: list[tuple[int, ...]] = []
        self.shown_hosts: list[tuple[str, ...]] = []
        self.orders: defaultdict[str, list[Any]] = defaultdict(list)
        """What was ordered, by feature."""
        self.given: dict[str, Any] = {}
        """News of features in the place of what a file of the frame would have."""
        self._news_of: tuple[Frame, dict[str, Any]] | None = None
        self._news: Mapping[str, Any] = {}
        self.dumped: list[tuple[int, ...]] = []
        self.inspected: list[int] = []
        self.taken_native: list[int] = []
        self.captured: list[tuple[Path, bool]] = []
        self.finished = 0
        self.redacts = False
        self.exported: list[tuple[Path, str, bool]] = []
        self.chosen: list[JobKey | None] = []
        self.statistics_wanted: dict[str, StatisticsWanted | None] = {}
        self.explained: list[bool] = []
        self.closed = False

    def frame(self) -> Frame:
        return self._frames[self._index]

    def advance(self) -> None:
        """Goes to the next frame; stays at the last one."""
        self._index = min(self._index + 1, len(self._frames) - 1)

    def give(self, frame: Frame) -> None:
        """Appends a frame and goes there."""
        self._frames.append(frame)
        self._index = len(self._frames) - 1

    def watch(self, ranks: Iterable[int]) -> None:
        self.watched.append(tuple(ranks))

    def show_hosts(self, hosts: Iterable[str]) -> None:
        self.shown_hosts.append(tuple(hosts))

    def news(self) -> Mapping[str, Any]:
        frame = self.frame()
        if self._news_of is None or self._news_of[0] is not frame or self._news_of[1] != self.given:
            of_file = {kind.name: kind.of_file(frame) for kind in follower_kinds()}
            self._news_of, self._news = (frame, {**self.given}), {**of_file, **self.given}
        return self._news

    def do(self, request: Asked, ranks: Iterable[int] = ()) -> None:
        if isinstance(request, wire.RankRequest) and request.in_rank:
            self.inspected += ranks
        elif isinstance(request, wire.NativeStacksRequest):
            self.taken_native += ranks
        elif isinstance(request, wire.SnapshotRequest):
            self.dumped.append(tuple(ranks))
        for kind in follower_kinds():
            if isinstance(request, kind.orders):
                self.orders[kind.name].append(request)
            elif isinstance(request, kind.requests):
                self.orders[kind.name].append(tuple(ranks))

    def capture(
        self,
        path: Path,
        *,
        automatic: bool = False,
        settle_s: float = 0.0,
        redact: bool = False,
    ) -> None:
        self.captured.append((path, automatic))
        self.redacts = redact

    def finish_capture(self) -> None:
        self.finished += 1

    def export(self, path: Path, name: str, *, over: bool = False, redact: bool = False) -> None:
        self.exported.append((path, name, over))
        self.redacts = redact

    def choose(self, job: JobKey | None) -> None:
        self.chosen.append(job)

    def want_statistics(self, wanted: StatisticsWanted | None, *, whom: str = "") -> None:
        self.statistics_wanted[whom] = wanted

    def explain(self, *, on: bool) -> None:
        self.explained.append(on)

    def close(self) -> None:
        self.closed = True
