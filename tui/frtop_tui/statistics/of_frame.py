"""Statistics of a recorded job, which the agents' code computes from the ops of its frame."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, TypeVar

from msgspec.structs import replace

from frtop_probe import wire
from frtop_probe.statistics.calls import OpFields, RankCalls, SiteTable
from frtop_probe.statistics.op_records import fields_of
from frtop_probe.statistics.rank_summary import RankSummary, Window
from frtop_probe.statistics.steps import SPANS, StepEnd
from frtop_tui.job.groups import members_of
from frtop_tui.job.model import BaseFrame, Rank
from frtop_tui.job.statistics import JobStatistics
from frtop_tui.statistics.answers import RankAnswer, errors_of
from frtop_tui.statistics.merger import StatisticsMerger
from frtop_tui.statistics.wanted import (
    FEW_OPS,
    LONG_WINDOW_S,
    StatisticsWanted,
    most_ops,
    samples_for,
)

ALL: Final = StatisticsWanted(window_s=0.0, calls=True)
"""Everything in the histories."""
STEPS: Final = 1024
MOST_WINDOWS: Final = 60
"""An hour: if a rank has been slow for longer, frtop says *at least* that long."""
SLICES: Final = 12
"""A live job reports a minute in this many slices, each with its own samples."""
OPS_BEFORE: Final = 256
"""Ops before a window; they only matter for its first step."""
AnyFrame = TypeVar("AnyFrame", bound=BaseFrame)
Marks = Mapping[int, tuple[wire.Mark, ...]]
"""The marks in each rank's history: absent ranks have none."""


def statistics_of(
    frame: BaseFrame, marks: Marks, wanted: StatisticsWanted = ALL
) -> JobStatistics | None:
    """The statistics of the last `wanted.window_s` seconds (0: all) before the frame.

    None if no rank has a history.
    """
    recorded = RecordedOps(frame, marks)
    if not recorded.first_ns:
        return None
    until = recorded.until_ns
    since = until - round(wanted.window_s * 1e9) if wanted.window_s else recorded.first_ns
    return recorded.between(since, until, wanted, slices=1)


def again(
    frame: BaseFrame, wanted: StatisticsWanted, before: JobStatistics | None
) -> JobStatistics | None:
    """The same for another `wanted`; steps come from `before`, as a frame contains no marks."""
    found = statistics_of(frame, dict.fromkeys(before.ranks, ()), wanted) if before else None
    if found is None or before is None:
        return None
    inside = {
        rank: tuple(step for step in several if found.since_ns <= step.end_ns < found.until_ns)
        for rank, several in before.steps.items()
    }
    return replace(found, steps={rank: several for rank, several in inside.items() if several})


def without_overlap(before: BaseFrame, after: AnyFrame) -> AnyFrame:
    """`after` with statistics of only what `before` lacks: both may come from one run.

    Rings hold minutes, so two captures of one run share most steps.
    """
    earlier, later = before.recorded, after.recorded
    found = after.statistics
    if earlier is None or later is None or found is None or not _is_same_run(before, after):
        return after
    seconds = (later.wall_ns - earlier.wall_ns) / 1e9
    if not 0 < seconds < found.seconds:
        return after
    later_only = again(after, StatisticsWanted(seconds, calls=True), found)
    return after if later_only is None else replace(after, statistics=later_only)


def _is_same_run(before: BaseFrame, after: BaseFrame) -> bool:
    """Whether some rank is the same process in both."""
    return any(
        (one.host, one.identity.pid, one.identity.start_ticks)
        == (other.host, other.identity.pid, other.identity.start_ticks)
        for rank, one in after.ranks.items()
        if (other := before.ranks.get(rank)) is not None
    )


def minutes_of(frame: BaseFrame) -> Iterator[JobStatistics]:
    """The statistics behind a live job's verdicts, minute by minute from the newest back.

    If the newest one has few ops, ten minutes stand for one. `frame` comes from a file: its
    statistics cover all of its ranks' histories.
    """
    if frame.statistics is None:
        return
    views = (frame.ranks.get(rank) for rank in frame.statistics.ranks)
    marks = {one.rank: one.snapshot.marks for one in views if one is not None and one.snapshot}
    recorded, wanted = RecordedOps(frame, marks), StatisticsWanted()
    length = round(wanted.window_s * 1e9)
    until, slices = recorded.until_ns, SLICES
    for number in range(MOST_WINDOWS):
        if not 0 < recorded.first_ns < until:
            return
        found = recorded.between(until - length, until, wanted, slices)
        if not number and (found is None or most_ops(found, until - length) <= FEW_OPS):
            length = round(LONG_WINDOW_S * 1e9)
            slices = round(LONG_WINDOW_S / wanted.window_s) * SLICES
            found = recorded.between(until - length, until, wanted, slices)
        if found is not None:
            yield found
        until -= length


class _RankOps(NamedTuple):
    """The ops of one rank by field, and the tables that they refer to."""

    view: Rank
    ops: OpFields
    marks: tuple[wire.Mark, ...]
    rows: RankCalls
    sites: SiteTable


class RecordedOps:
    """The histories of a job's ranks; computes statistics of any window."""

    def __init__(self, frame: BaseFrame, marks: Marks) -> None:
        """Args: marks: those of the ranks that have a history."""
        self._frame = frame
        self._views = [view for number, view in frame.ranks.items() if number in marks]
        self._marks = marks
        self._ranks: list[_RankOps] = []
        issued = [op.issued_ns + view.clock_ns for view in self._views for op in
                  (*_ops(view)[:1], *_ops(view)[-1:]) if op.issued_ns > 0]  # fmt: skip
        issued += [one.begin_ns + view.clock_ns for view in self._views for one in
                   marks.get(view.rank, ())[:1]]  # fmt: skip
        self.first_ns = min(issued, default=0)
        self.until_ns = max(frame.now_ns, *issued) + 1 if issued else frame.now_ns + 1

    def between(
        self, since: int, until: int, wanted: StatisticsWanted, slices: int
    ) -> JobStatistics | None:
        """What happened between two times of the operator's clock, whatever window is `wanted`.

        Samples as many ops as `slices` slices of a live job.
        """
        self._ranks = self._ranks or [
            _of_rank(view, self._marks.get(view.rank, ())) for view in self._views
        ]
        merger = StatisticsMerger(wanted.ranks, wanted.groups)
        merger.begin(0, since, until)
        samples = slices * samples_for([len(view.groups) for view in self._views], slices)
        for one in self._ranks:
            clock = one.view.clock_ns
            window = Window(since - clock, until - clock, wanted.calls, samples, STEPS)
            merger.add(0, _answer(one, window))
        return merger.build(errors_of(self._frame.hosts), self._frame.ranks)


def _ops(view: Rank) -> tuple[wire.Op, ...]:
    return view.snapshot.ops if view.snapshot is not None else ()


def _of_rank(view: Rank, marks: tuple[wire.Mark, ...]) -> _RankOps:
    sites, rows = SiteTable(), RankCalls()
    members = {number: len(members_of(group.ranks)) for number, group in view.groups.items()}
    ops = fields_of(_ops(view), rows, sites, lambda group: members.get(group, 0))
    return _RankOps(view, ops, marks, rows, sites)


def _answer(one: _RankOps, window: Window) -> RankAnswer:
    view = one.view
    summary = RankSummary(window, window.until_ns)
    summary.table.places = one.rows.places
    summary.add(_around(one.ops, window))
    splitter, main = summary.splitter, view.identity.main_ident
    # The first step of a window began before it.
    from_ns = 2 * window.since_ns - window.until_ns
    for mark in one.marks:
        if mark.end_ns < from_ns:
            continue
        if mark.kind == "step":
            splitter.add_end(StepEnd(mark.number, mark.end_ns, main, mark.samples))
        elif mark.kind in SPANS:
            splitter.add_span(mark.kind, mark.begin_ns, mark.end_ns)
            splitter.fetches |= mark.kind == "fetch"
            splitter.phases |= mark.kind == "backward"
    snapshot = view.snapshot
    lost, note = (snapshot.ops_lost, snapshot.ops_note) if snapshot is not None else (0, "")
    begun_ns = one.ops.issued[0] if one.ops.issued else window.since_ns
    found = summary.build(view.key, begun_ns, lost, note)
    places, issuers = tuple(one.sites.places), tuple(one.sites.issuers)
    return RankAnswer(view.rank, view.host, view.clock_ns, view.groups, found, places, issuers)


def _around(ops: OpFields, window: Window) -> OpFields:
    """The ops of a window, and a few earlier ones."""
    first = max(0, bisect_left(ops.issued, window.since_ns) - OPS_BEFORE)
    last = bisect_left(ops.issued, window.until_ns)
    part = slice(first, last)
    classes, number, issued, took, thread, waited = ops
    return OpFields(
        classes[part], number[part], issued[part], took[part], thread[part], waited[part]
    )
