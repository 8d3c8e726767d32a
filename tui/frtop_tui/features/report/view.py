"""`:report`: what the job reports about itself, a row for each name, compared between ranks."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_not
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.reported import ReportedRow, reported_rows
from frtop_tui.job.units import NOT_KNOWN, counted
from frtop_tui.screens.base import BACK, FrameScreen
from frtop_tui.screens.messages import open_ranks
from frtop_tui.text.reported_words import (
    NOTHING,
    TITLE,
    between_words,
    figure,
    reported_finding,
)
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, Span, plain, shorten_ranks, wrap
from frtop_tui.widgets.table import Column, LineTable

AGAIN_NS: Final = 2_000_000_000
"""Ranks are compared no more often: agents send values every 2 s."""
MOST_VALUES: Final = 16
"""Different values of a name that are listed."""
_RANKS: Final = 10


def _extreme(row: ReportedRow, place: int) -> Span:
    return (figure(row.finite[place][0] if row.finite else None), "")


def _sort_key(row: ReportedRow, place: int) -> float:
    return row.finite[place][0] if row.finite else float("-inf")


def _between(row: ReportedRow) -> Span:
    return (between_words(row), "warn" if row.findings or row.not_finite else "")


COLUMNS: Final[tuple[Column[ReportedRow], ...]] = (
    Column("name", 12, lambda row: (row.name, "strong"), lambda row: row.name, wide=24),
    Column(
        "step", 7, lambda row: (NOT_KNOWN if row.step is None else f"{row.step:,}", "dim"),
        lambda row: row.step or 0, right=True, wide=9,
    ),
    Column(
        "least", 9, lambda row: _extreme(row, 0), lambda row: _sort_key(row, 0),
        right=True, needs=70, wide=12,
    ),
    Column(
        "median", 9, lambda row: (figure(row.middle), ""), lambda row: row.middle or 0.0,
        right=True, wide=12,
    ),
    Column(
        "most", 9, lambda row: _extreme(row, -1), lambda row: _sort_key(row, -1),
        right=True, needs=70, wide=12,
    ),
    Column(
        "ranks", 7, lambda row: (shorten_ranks(fold(row.ranks), _RANKS), "dim"),
        lambda row: len(row.ranks), needs=90, wide=10,
    ),
    Column("between ranks", 0, _between, lambda row: len(row.findings)),
)  # fmt: skip


def name_lines(row: ReportedRow, width: int) -> list[Line]:
    """One name in full: its findings, then its values with their ranks."""
    lines = [line for one in row.findings for line in wrap(reported_finding(one), width, "warn")]
    if row.step is None:
        text = "its ranks have no step in common yet: values of different steps are not compared"
        return [*lines, *(wrap(text, width, "dim") if len(row.ranks) > 1 else [])]
    by_value: dict[str, list[int]] = {}
    for rank, value in row.values.items():
        by_value.setdefault(repr(value), []).append(rank)
    lines.append(plain(f"at step {row.step:,}, of {counted(row.compared, 'compared step')}", "dim"))
    ordered = sorted(by_value.items(), key=lambda one: (len(one[1]), one[1]))
    for text, ranks in ordered[:MOST_VALUES]:
        room = max(12, width - len(text) - 10)
        lines.append(((f"  {text}", ""), (f"  rank {shorten_ranks(fold(ranks), room)}", "dim")))
    if len(ordered) > MOST_VALUES:
        lines.append(plain(f"  and {counted(len(ordered) - MOST_VALUES, 'more value')}", "dim"))
    return lines


class ReportedTable(LineTable[ReportedRow]):
    """A row for each name; `enter` lists its ranks, those of a finding if there is one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "ranks", tooltip="list the ranks of a finding, else all with it",
                id="report.open"),
    ]  # fmt: skip

    def __init__(self) -> None:
        super().__init__(COLUMNS, NOTHING, id="reported", classes="pane")
        self._of: tuple[object, ...] = ()
        self._compared_ns = -AGAIN_NS

    def show_frame(self, frame: Frame) -> None:
        """Compares the ranks again if one has reported something."""
        of = tuple(one for view in frame.ranks.values() for one in (view.reported, view.state))
        is_new = len(of) != len(self._of) or any(map(is_not, of, self._of))
        if is_new and not 0 <= frame.now_ns - self._compared_ns < AGAIN_NS:
            self._of, self._compared_ns = of, frame.now_ns
            self.rows = reported_rows(frame.ranks)
        found = sum(len(row.findings) for row in self.rows)
        self.entitle(f"{TITLE}: {counted(found, 'finding')}" if found else TITLE)
        self.show(self.rows, lambda row: row.name)


class NameInFull(LineView, can_focus=False):
    """The name under the cursor; hidden without one."""

    def __init__(self) -> None:
        super().__init__(id="reported-in-full", classes="pane")
        self.row: ReportedRow | None = None

    def show(self, row: ReportedRow | None) -> None:
        self.row = row
        self.display = row is not None
        self.entitle(row.name if row is not None else "")
        self.redraw()

    def content(self, width: int) -> Sequence[Line]:
        return name_lines(self.row, width) if self.row is not None else ()


class ReportedScreen(FrameScreen):
    """The table, and the name under the cursor in full."""

    AUTO_FOCUS = "#reported"
    crumb = "report"
    BINDINGS: ClassVar[list[BindingType]] = [BACK]

    def panes(self) -> ComposeResult:
        yield ReportedTable()
        yield NameInFull()

    def draw(self, frame: Frame) -> None:
        table = self.query_one(ReportedTable)
        table.show_frame(frame)
        self.query_one(NameInFull).show(table.chosen)

    def on_line_view_moved(self) -> None:
        self.query_one(NameInFull).show(self.query_one(ReportedTable).chosen)

    def on_line_view_chosen(self) -> None:
        row = self.query_one(ReportedTable).chosen
        if row is not None:
            found = {rank for one in row.findings for rank in one.ranks}
            self.post_message(open_ranks(sorted(found) or row.ranks))
