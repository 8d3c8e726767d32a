"""A source that shows given frames and records every command."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.flame.model import SampledStacks
from frtop_tui.features.profile.model import ProfileOptions, ProfileProgress
from frtop_tui.features.tensor_checks.orders import NO_NUMBERS, JobNumbers, RecordOrder
from frtop_tui.features.timeline.histories import Histories, histories_in
from frtop_tui.job.naming import JobKey
from frtop_tui.statistics.wanted import StatisticsWanted


class ScriptedSource:
    """In the place of a live job, for tests, pictures and benchmarks."""

    def __init__(self, frames: Sequence[Frame]) -> None:
        self._frames = list(frames)
        self._index = 0
        self.watched: list[tuple[int, ...]] = []
        self.shown_hosts: list[tuple[str, ...]] = []
        self.followed: list[tuple[tuple[int, ...], int | None]] = []
        self._histories_of: Frame | None = None
        self._histories = Histories()
        self.dumped: list[tuple[int, ...]] = []
        self.inspected: list[int] = []
        self.orders: list[RecordOrder] = []
        self.given_numbers = NO_NUMBERS
        self.taken_native: list[int] = []
        self.saved: list[tuple[int, int, Path]] = []
        self.captured: list[tuple[Path, bool]] = []
        self.finished = 0
        self.redacts = False
        self.exported: list[tuple[Path, str, bool]] = []
        self.chosen: list[JobKey | None] = []
        self.profiled: list[tuple[tuple[int, ...], ProfileOptions, Path]] = []
        self.profile_progress: ProfileProgress | None = None
        self.withdrawn = self.ended = 0
        self.sampled: list[tuple[int, ...]] = []
        self.sampled_stacks = SampledStacks()
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

    def follow_lanes(self, ranks: Iterable[int], since_ns: int | None) -> None:
        self.followed.append((tuple(ranks), since_ns))

    def histories(self) -> Histories:
        frame = self.frame()
        if self._histories_of is not frame:
            self._histories_of, self._histories = frame, histories_in(frame)
        return self._histories

    def record(self, order: RecordOrder) -> None:
        self.orders.append(order)

    def numbers(self) -> JobNumbers:
        return self.given_numbers

    def dump(self, ranks: Iterable[int]) -> None:
        self.dumped.append(tuple(ranks))

    def inspect(self, rank: int) -> None:
        self.inspected.append(rank)

    def take_native(self, rank: int) -> None:
        self.taken_native.append(rank)

    def save(self, rank: int, sequence: int, path: Path) -> None:
        self.saved.append((rank, sequence, path))

    def profile(self, ranks: Iterable[int], options: ProfileOptions, path: Path) -> None:
        self.profiled.append((tuple(ranks), options, path))

    def withdraw_profile(self, *, keep: bool = False) -> None:
        if keep:
            self.ended += 1
        else:
            self.withdrawn += 1

    def profiling(self) -> ProfileProgress | None:
        return self.profile_progress

    def sample(self, ranks: Iterable[int]) -> None:
        self.sampled.append(tuple(ranks))

    def samples(self) -> SampledStacks:
        return self.sampled_stacks

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
