"""Statistics: what ops cost by line, op, group and rank, who arrives last, where a step goes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.statistics.pane import StatisticsView
from frtop_tui.features.statistics.rows import StatisticsRow
from frtop_tui.features.statistics.table import CallStatisticsTable, RankStatisticsTable, RowRest
from frtop_tui.job.reported import reported_rows
from frtop_tui.job.statistics import JobStatistics
from frtop_tui.job.units import NOT_KNOWN, counted, live_duration
from frtop_tui.screens.filtered import FilteredScreen
from frtop_tui.screens.messages import OpenRank, OpenTimeline, open_ranks
from frtop_tui.screens.windowed import WINDOWS, WindowedScreen
from frtop_tui.statistics.step_table import StepRow, has_bubbles, stage_rows, step_rows
from frtop_tui.text.reported_words import brief_reported
from frtop_tui.text.statistics_table import bubble_share, step_cell
from frtop_tui.text.statistics_words import (
    bounds_words,
    clock_words,
    no_steps_words,
    waiting_words,
    wanted_words,
    window_words,
)
from frtop_tui.widgets.fields import FilterField
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, fit, flow, plain, shorten_ranks, wrap

PARTS: Final = ("data", "forward", "backward", "bubble", "optimizer")
_LABEL, _WIDTH, _WIDEST = 10, 9, 14


def step_lines(rows: Sequence[StepRow], found: JobStatistics, width: int) -> list[Line]:
    """A title, the medians of all ranks, a line for each rank that stands out, then the stages."""
    parts = [name for name in PARTS if name != "bubble" or has_bubbles(found)]
    known = [name for name in parts if step_cell(rows[0], name) != NOT_KNOWN]
    names = [*known, "own", "step"]
    for name in ("optimizer", "forward", "backward", "data"):
        if name in names and _LABEL + _WIDTH * len(names) + _WIDEST > width:
            names.remove(name)
    titles = [fit(name.replace("optimizer", "optim"), _WIDTH, right=True) for name in names]
    title = f"{'':{_LABEL}}{''.join(titles)}{fit('communication', _WIDEST, right=True)}"
    lines = [plain(title, "dim")]
    for row in rows:
        label = "median" if row.rank is None else f"rank {row.rank}"
        figures = [(fit(step_cell(row, name), _WIDTH, right=True), "") for name in names]
        between = (fit(step_cell(row, "communication"), _WIDEST, right=True), "dim")
        lines.append(((fit(label, _LABEL), "strong"), *figures, between))
    if stages := stage_rows(found):
        shares = (plain(f"stage {row.stage} {bubble_share(row)}") for row in stages)
        lines += flow([plain("bubble", "dim"), *shares], width, between=" · ")
    if missing := [name for name in parts if name not in known]:
        lines.append(plain(f"not recorded: {', '.join(missing)}", "dim"))
    return lines


class StepPane(LineView, can_focus=False):
    """Where a step goes; computed once for each answer."""

    def __init__(self) -> None:
        super().__init__(id="steps", classes="pane")
        self._of: JobStatistics | None = None
        self._rows: list[StepRow] = []
        self._why_empty = ""
        self._reported = ""

    def show(self, frame: Frame) -> None:
        statistics = frame.screen_statistics
        self._why_empty = no_steps_words(frame)
        if statistics is not self._of:
            self._of = statistics
            self._rows = step_rows(statistics) if statistics is not None else []
            self._reported = brief_reported(reported_rows(frame.ranks))
        of = f": medians of {self._rows[0].steps:,} steps" if self._rows else ""
        self.entitle(f"where a step goes{of}")
        self.display = self._of is not None
        self.redraw()

    def content(self, width: int) -> Sequence[Line]:
        if self._of is None:
            return ()
        if not self._rows:
            return wrap(self._why_empty, width, "dim")
        return [*step_lines(self._rows, self._of, width), *wrap(self._reported, width)]


class StatisticsScreen(FilteredScreen, WindowedScreen):
    """`c` marks the statistics to compare the next ones with."""

    AUTO_FOCUS = "#calls"
    crumb = "statistics"
    view: StatisticsView
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("v", "grouping", "view", tooltip="by line, op, group or rank", id="view.grouping"),
        Binding("space", "unfold", "groups",
                tooltip="the groups of the row, or only those that differ", id="row.unfold"),
        Binding("T", "timeline", "timeline",
                tooltip="the newest op of the row at which its last rank arrived last", id="when"),
        Binding("W", "window", "window", tooltip="60 s, 10 s, or as far as rings reach",
                id="view.window"),
        Binding("c", "baseline", "compare", tooltip="columns show what changes from now on",
                id="mark.baseline"),
        Binding("slash", "filter", "filter", tooltip="words of line, op and group; ! negates",
                id="filter"),
    ]  # fmt: skip

    def __init__(self, marked: set[int], window_s: float | None = None) -> None:
        super().__init__(marked, window_s)
        self.view = StatisticsView()

    def panes(self) -> ComposeResult:
        yield StatisticsHead()
        yield CallStatisticsTable(self.view.at)
        yield RankStatisticsTable(self.view.at)
        yield RowRest()
        yield StepPane()
        yield FilterField("", "train.py  all_reduce  !tp")

    def on_mount(self) -> None:
        self.query_one("#filter").display = False
        self.query_one(RankStatisticsTable).display = False
        self.call_after_refresh(self._draw_rest)
        super().on_mount()

    @property
    def subject(self) -> int | None:
        table = self.table
        if isinstance(table, RankStatisticsTable):
            return table.chosen.rank if table.chosen is not None else None
        target = self.view.target(table.chosen) if table.chosen is not None else None
        return target if isinstance(target, int) else None

    @property
    def table(self) -> CallStatisticsTable | RankStatisticsTable:
        by_rank = self.view.grouping == "rank"
        return (
            self.query_one(RankStatisticsTable) if by_rank else self.query_one(CallStatisticsTable)
        )

    def draw(self, frame: Frame) -> None:
        view = self.view
        view.take(frame)
        view.at.of_interest = self.of_interest
        head = self.query_one(StatisticsHead)
        head.show(frame, view.difference_text(), self.why_no_answer)
        self.query_one(StepPane).show(frame)
        table = self.table
        table.sorted_by, table.reverse = view.sort, view.reverse
        table.empty = view.why_empty(self._to_widen(), self.why_no_answer)
        if isinstance(table, CallStatisticsTable):
            calls = view.calls()
            table.show_rows(calls, view.grouping)
        else:
            table.show_rows(view.ranks())
        also = ", stragglers first" if view.begins_with_stragglers else ""
        also += f", filter {view.filter_text}" if view.filter_text else ""
        window, _ = wanted_words(self.window_s, frame.screen_statistics)
        wanted = f" · {window}" if frame.recorded is None else ""
        table.entitle(f"by {view.grouping}: {view.count:,}{also}{wanted}")
        self._draw_rest()

    def on_line_view_moved(self) -> None:
        self._draw_rest()

    def _draw_rest(self) -> None:
        table, rest = self.table, self.query_one(RowRest)
        rest.display = isinstance(table, CallStatisticsTable)
        rest.show(table.rest() if isinstance(table, CallStatisticsTable) else ())

    def action_grouping(self) -> None:
        focused = self.focused is not self.query_one(Input)
        self.view.next_grouping()
        for table in (self.query_one(CallStatisticsTable), self.query_one(RankStatisticsTable)):
            table.display = table is self.table
        self.draw_all()
        if focused:
            self.set_focus(self.table)

    def why_unavailable(self, action: str) -> str:
        if action == "timeline":
            return self.view.why_no_timeline(self.table.chosen)
        if action == "unfold":
            return self.view.why_not_unfolded(self.table.chosen)
        return super().why_unavailable(action)

    def action_timeline(self) -> None:
        """Opens the lane of the rank that arrives last at the row's ops, at the last such op."""
        if not self.check_available("timeline"):
            return
        chosen = self.table.chosen
        if isinstance(chosen, StatisticsRow):
            late = self.view.late_in(chosen)
            group = late.group if late is not None else None
            self.post_message(OpenTimeline(chosen.last.rank, group, late))
        elif chosen is not None:
            self.post_message(OpenTimeline(chosen.rank))

    def action_unfold(self) -> None:
        """Shows all groups of the row, or only those that differ from the others."""
        if not self.check_available("unfold"):
            return
        chosen = self.table.chosen
        if isinstance(chosen, StatisticsRow):
            self.view.unfold(chosen)
            self.draw_all()

    def _to_widen(self) -> str:
        """The keys that widen the window to all that rings hold; "" if it is that wide."""
        if not self.window_s or self.why_unavailable("window"):
            return ""
        return " ".join("w" * (len(WINDOWS) - 1 - self.window_place))

    def action_baseline(self) -> None:
        if not self.view.mark():
            self.app.notify("Nothing to compare with: no statistics have arrived yet.", timeout=4)
        self.draw_all()

    def on_line_view_chosen(self, event: LineView.Chosen) -> None:
        table = event.sender
        if isinstance(table, RankStatisticsTable) and table.chosen is not None:
            self.post_message(OpenRank(table.chosen.rank))
        elif isinstance(table, CallStatisticsTable) and table.chosen is not None:
            target = self.view.target(table.chosen)
            self.post_message(open_ranks([target] if isinstance(target, int) else target))


def scope_parts(frame: Frame, statistics: JobStatistics, no_answer: str) -> Iterator[Line]:
    """What the numbers cover, in parts."""
    if waiting := waiting_words(frame, statistics, no_answer):
        yield plain(waiting, "warn" if statistics.ranks else "")
    if not statistics.ranks or not statistics.with_calls:
        return
    age_s = max(0.0, (frame.now_ns - statistics.until_ns) / 1e9)
    yield plain(f"{window_words(statistics)}, until {live_duration(age_s)} ago")
    yield plain(counted(len(statistics.ranks), "rank"))
    count = sum(call.count for call in statistics.calls)
    timed = sum(call.timed for call in statistics.calls)
    if count:
        tone = "warn" if timed < count / 2 else ""
        yield plain(f"timed {timed:,} of {count:,} ops", tone)
    yield plain(clock_words(statistics), "" if statistics.clock_error_ns is not None else "warn")
    if statistics.lost:
        yield plain(f"{statistics.lost:,} ops could not be read", "warn")
    if statistics.missing:
        missing = statistics.missing
        yield plain(f"{len(missing):,} missing: {shorten_ranks(fold(missing), 24)}", "warn")


def scope_lines(frame: Frame, width: int, no_answer: str = "") -> list[Line]:
    """The parts, in as many lines as they need, then the notes."""
    statistics = frame.screen_statistics
    if statistics is None:
        waiting = waiting_words(frame, None, no_answer)
        return [plain(waiting)] if frame.recorded is None else []
    rows = flow(scope_parts(frame, statistics, no_answer), width, between=" · ")
    for note in (*bounds_words(frame, statistics), *statistics.notes):
        rows += wrap(note, width, "dim", ("note  ", "dim"))
    return rows


class StatisticsHead(LineView, can_focus=False):
    """The lines above the table."""

    def __init__(self) -> None:
        super().__init__(id="scope")
        self.frame: Frame | None = None
        self.difference = ""
        """What columns compare with; "" if they show values."""
        self.no_answer = ""
        """Why no answer will be shown; "" if one may come."""

    def show(self, frame: Frame, difference: str, no_answer: str) -> None:
        self.frame, self.difference, self.no_answer = frame, difference, no_answer
        self.redraw()

    def content(self, width: int) -> Sequence[Line]:
        if self.frame is None:
            return ()
        rows = scope_lines(self.frame, width - 2, self.no_answer)
        if self.difference:
            rows[:0] = wrap(self.difference, width - 2, "strong")
        return [(*plain(" "), *row) for row in rows]
