"""Statistics of a job that was recorded: out of the ops that its frame has, by the agents' code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from msgspec.structs import replace

from frtop_probe import wire
from frtop_probe.statistics.calls import SiteTable
from frtop_probe.statistics.op_records import fields_of
from frtop_probe.statistics.rank_summary import RankSummary, Window
from frtop_probe.statistics.steps import SPANS, StepEnd
from frtop_tui.job.groups import members_of
from frtop_tui.job.model import BaseFrame, Rank
from frtop_tui.job.statistics import JobStatistics
from frtop_tui.statistics.answers import RankAnswer, errors_of
from frtop_tui.statistics.merger import StatisticsMerger
from frtop_tui.statistics.wanted import StatisticsWanted, samples_for

ALL: Final = StatisticsWanted(window_s=0.0, calls=True)
"""Everything that the histories have."""
STEPS: Final = 1024
AnyFrame = TypeVar("AnyFrame", bound=BaseFrame)
Marks = Mapping[int, tuple[wire.Mark, ...]]
"""By rank, of its history: ranks that are not there have none."""


def statistics_of(
    frame: BaseFrame, marks: Marks, wanted: StatisticsWanted = ALL
) -> JobStatistics | None:
    """The statistics of the last `wanted.window_s` seconds (0: all) before the frame.

    None where no rank has a history.
    """
    with_ops = {n: view for n, view in frame.ranks.items() if n in marks}
    issued = [op.issued_ns + view.clock_ns for view in with_ops.values() for op in
              (*_ops(view)[:1], *_ops(view)[-1:]) if op.issued_ns > 0]  # fmt: skip
    issued += [one.begin_ns + frame.ranks[n].clock_ns for n in with_ops for one in
               marks.get(n, ())[:1]]  # fmt: skip
    if not issued:
        return None
    until = max(frame.now_ns, *issued) + 1
    since = until - round(wanted.window_s * 1e9) if wanted.window_s else min(issued)
    merger = StatisticsMerger(wanted.ranks, wanted.groups)
    merger.begin(0, since, until)
    samples = samples_for([len(view.groups) for view in with_ops.values()], 1)
    for rank, view in with_ops.items():
        window = Window(since - view.clock_ns, until - view.clock_ns, wanted.calls, samples, STEPS)
        merger.add(0, _answer(view, marks.get(rank, ()), window))
    return merger.build(errors_of(frame.hosts), frame.ranks)


def again(
    frame: BaseFrame, wanted: StatisticsWanted, before: JobStatistics | None
) -> JobStatistics | None:
    """The same for others who want it; steps are those of `before`, as a frame holds no marks."""
    found = statistics_of(frame, dict.fromkeys(before.ranks, ()), wanted) if before else None
    if found is None or before is None:
        return None
    inside = {
        rank: tuple(step for step in several if found.since_ns <= step.end_ns < found.until_ns)
        for rank, several in before.steps.items()
    }
    return replace(found, steps={rank: several for rank, several in inside.items() if several})


def without_overlap(before: BaseFrame, after: AnyFrame) -> AnyFrame:
    """`after` with the statistics of what `before` does not have: both may be of one run.

    Rings hold minutes, so two captures of one run have most steps in common.
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
    """Whether a rank is the same process."""
    return any(
        (one.host, one.identity.pid, one.identity.start_ticks)
        == (other.host, other.identity.pid, other.identity.start_ticks)
        for rank, one in after.ranks.items()
        if (other := before.ranks.get(rank)) is not None
    )


def _ops(view: Rank) -> tuple[wire.Op, ...]:
    return view.snapshot.ops if view.snapshot is not None else ()


def _answer(view: Rank, marks: Iterable[wire.Mark], window: Window) -> RankAnswer:
    sites = SiteTable()
    summary = RankSummary(window, window.until_ns)
    members = {number: len(members_of(group.ranks)) for number, group in view.groups.items()}
    ops = fields_of(_ops(view), summary.table, sites, lambda group: members.get(group, 0))
    summary.add(ops)
    splitter, main = summary.splitter, view.identity.main_ident
    for mark in marks:
        if mark.kind == "step":
            splitter.add_end(StepEnd(mark.number, mark.end_ns, main, mark.samples))
        elif mark.kind in SPANS:
            splitter.add_span(mark.kind, mark.begin_ns, mark.end_ns)
            splitter.fetches |= mark.kind == "fetch"
            splitter.phases |= mark.kind == "backward"
    snapshot = view.snapshot
    lost, note = (snapshot.ops_lost, snapshot.ops_note) if snapshot is not None else (0, "")
    from_ns = ops.issued[0] if ops.issued else window.since_ns
    found = summary.build(view.key, from_ns, lost, note)
    return RankAnswer(view.rank, view.host, view.clock_ns, view.groups, found, tuple(sites.places))
