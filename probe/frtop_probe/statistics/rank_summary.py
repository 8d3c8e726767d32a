"""Builds the requested statistics of one rank."""

from __future__ import annotations

from collections.abc import Callable
from itertools import compress
from typing import NamedTuple

from frtop_probe import wire
from frtop_probe.statistics.calls import OpClass, OpFields, RankCalls
from frtop_probe.statistics.samples import Sampler
from frtop_probe.statistics.steps import StepSplitter


class Window(NamedTuple):
    """A time span in ns, and which statistics are wanted."""

    since_ns: int
    until_ns: int
    calls: bool = True
    samples: int = 0
    steps: int = 0


class RankSummary:
    """Takes the ops of one rank, oldest first, and builds its `wire.RankStatistics`."""

    def __init__(self, window: Window, now_ns: int) -> None:
        """An op that has not ended is pending until `now_ns`."""
        self.window = window
        self.table = RankCalls()
        self.splitter = StepSplitter(now_ns)
        self._sampler = Sampler(window.samples) if window.samples else None

    def add(self, ops: OpFields) -> None:
        """Adds ops. Ops from before the window matter only for its first step."""
        self.add_to_steps(ops)
        inside = within(ops, self.window.since_ns, self.window.until_ns)
        if inside.issued:
            self.add_inside(inside)

    def add_to_steps(self, ops: OpFields) -> None:
        """Adds ops of any time, in order of issue."""
        if self.window.steps:
            self.splitter.add_ops(ops)

    def add_inside(self, ops: OpFields, resolve: Callable[[int], OpClass] | None = None) -> None:
        """Adds ops of the window to its rows and samples.

        Args:
            ops: at least one.
            resolve: returns the op's class with line and size, by its place; needed if the classes
                in `ops` lack these because `calls` were not requested.
        """
        if self.window.calls:
            self.table.count(ops)
        if self._sampler is not None:
            self._sampler.add(ops, resolve)

    def build(self, key: int, from_ns: int, lost: int, note: str) -> wire.RankStatistics:
        """Returns the statistics to send."""
        window, sampler = self.window, self._sampler
        rows, places = self.table.rows(sampler.calls if sampler is not None else ())
        samples = sampler.build(places) if sampler is not None else ()
        steps = None
        if window.steps:
            steps = self.splitter.build(window.since_ns, window.until_ns, window.steps)
        if self.table.is_full:
            note = f"{note}; " * bool(note) + "too many different ops: some are in one row"
        if self.table.modules_left_out:
            note = f"{note}; " * bool(note) + "too many modules: some are not counted"
        from_ns = max(from_ns, window.since_ns)
        return wire.RankStatistics(
            key, from_ns, rows, samples, steps, max(0, lost), note, self.table.modules()
        )


def within(ops: OpFields, since_ns: int, until_ns: int) -> OpFields:
    """Returns the ops that were issued from `since_ns` to before `until_ns`."""
    issued = ops.issued
    if not issued or (min(issued) >= since_ns and max(issued) < until_ns):
        return ops
    wanted = [since_ns <= at < until_ns for at in issued]
    return OpFields(
        list(compress(ops.classes, wanted)),
        list(compress(ops.number, wanted)),
        list(compress(issued, wanted)),
        list(compress(ops.took, wanted)),
        list(compress(ops.thread, wanted)),
        list(compress(ops.waited, wanted)),
    )
