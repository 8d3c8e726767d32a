"""All ranks as a table that can be sorted, filtered and marked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input, Static

from frtop_tui.diagnosis.model import Frame
from frtop_tui.screens.base import STACKS
from frtop_tui.screens.contributed import rank_keys
from frtop_tui.screens.filter import FilterError, matching
from frtop_tui.screens.filtered import FilteredScreen
from frtop_tui.screens.messages import OpenRank
from frtop_tui.widgets.fields import FilterField
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.rank_table import RankTable
from frtop_tui.widgets.table import neighbour


class RankRowsShown:
    """The filter and the order of the table of ranks."""

    def __init__(self, filter_text: str) -> None:
        self.filter_text = filter_text
        self.sort = "state"
        self.reverse = False

    def sort_by_neighbour(self, titles: Sequence[str], by: int) -> None:
        self.sort = neighbour(titles, self.sort, by)


class RanksScreen(FilteredScreen):
    """All ranks, or those that match a filter."""

    AUTO_FOCUS = "#ranks"
    crumb = "ranks"
    view: RankRowsShown
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "slash",
            "filter",
            "filter",
            tooltip="by rank: host: group: state, ! negates",
            id="filter",
        ),
        *rank_keys(),
        STACKS,
        *rank_keys(first=True),
    ]

    def __init__(self, marked: set[int], filter_text: str = "", *, editing: bool = False) -> None:
        super().__init__(marked)
        self.view = RankRowsShown(filter_text)
        self.error = ""
        self.editing = editing

    @property
    def table(self) -> RankTable:
        return self.query_one(RankTable)

    def panes(self) -> ComposeResult:
        yield RankTable(self.marked, id="ranks", classes="pane")
        yield Static(id="filter-error", markup=False)
        hint = "rank:0-7,64  host:node[0-3]  group:tp  late  !late"
        yield FilterField(self.view.filter_text, hint)

    def on_mount(self) -> None:
        super().on_mount()
        field = self.query_one(Input)
        field.display = self.editing
        if self.editing:
            self.set_focus(field)

    def draw(self, frame: Frame) -> None:
        table, view, words = self.table, self.view, self.view.filter_text
        try:
            ranks = matching(words, frame, self.marked)
            self.error = ""
        except FilterError as error:
            # The rows stay: a word that is half typed is invalid at every keystroke.
            self.error = str(error)
            ranks = [frame.ranks[r.rank] for r in table.rows if r.rank in frame.ranks]
            ranks.sort(key=lambda rank: rank.rank)
        column = next(c for c in table.columns if c.title == view.sort)
        table.context.take(frame)
        ranks.sort(key=column.key, reverse=view.reverse)
        table.sorted_by, table.reverse = view.sort, view.reverse
        shown = f"{len(ranks):,} of {len(frame.ranks):,}" if words else f"{len(ranks):,}"
        also = f", filter {words}" if words else ""
        marks = f", {len(self.marked)} marked" if self.marked else ""
        table.entitle(f"ranks {shown}{also}{marks}")
        table.empty = "no rank matches the filter; esc clears it" if words else "no ranks"
        table.show_ranks(frame, ranks)
        error_line = self.query_one("#filter-error", Static)
        if error_line.content != self.error:
            error_line.update(self.error)
        error_line.display = bool(self.error)

    @property
    def subject(self) -> int | None:
        return self.chosen

    @property
    def chosen(self) -> int | None:
        """The rank under the cursor."""
        row = self.table.chosen
        return row.rank if row is not None else None

    def on_line_view_chosen(self, event: LineView.Chosen) -> None:
        table = self.table
        if event.sender is table and table.chosen is not None:
            self.post_message(OpenRank(table.chosen.rank))
