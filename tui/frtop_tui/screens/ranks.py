"""All ranks as a table that can be sorted, filtered and marked."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input, Static

from frtop_tui.diagnosis.model import Frame
from frtop_tui.screens.base import STACKS, FrameScreen
from frtop_tui.screens.contributed import rank_keys
from frtop_tui.screens.filter import FilterError, matching
from frtop_tui.screens.messages import OpenRank
from frtop_tui.widgets.fields import FilterField
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.rank_table import RankTable


class RanksScreen(FrameScreen):
    """The filter is edited above the keys and applies at every keystroke."""

    AUTO_FOCUS = "#ranks"
    crumb = "ranks"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "escape", "clear_or_back", "back", tooltip="clear the filter, then back", id="back"
        ),
        Binding(
            "slash",
            "filter",
            "filter",
            tooltip="by rank: host: group: state, ! negates",
            id="filter",
        ),
        Binding(
            "less_than_sign", "sort(-1)", "sort", tooltip="by the previous column", id="sort.before"
        ),
        Binding(
            "greater_than_sign",
            "sort(1)",
            "sort",
            show=False,
            tooltip="by the next column",
            id="sort.next",
        ),
        Binding("I", "reverse", "reverse", tooltip="reverse the order", id="sort.reverse"),
        *rank_keys(),
        STACKS,
        *rank_keys(first=True),
    ]

    def __init__(self, marked: set[int], filter_text: str = "", *, editing: bool = False) -> None:
        super().__init__(marked)
        self.filter_text = filter_text
        self.error = ""
        self.sort = "state"
        self.reverse = False
        self.editing = editing

    def panes(self) -> ComposeResult:
        yield RankTable(self.marked, id="ranks", classes="pane")
        yield Static(id="filter-error", markup=False)
        yield FilterField(self.filter_text, "rank:0-7,64  host:node[0-3]  group:tp  late  !late")

    def on_mount(self) -> None:
        super().on_mount()
        field = self.query_one(Input)
        field.display = self.editing
        if self.editing:
            self.set_focus(field)

    def draw(self, frame: Frame) -> None:
        table = self.query_one(RankTable)
        try:
            ranks = matching(self.filter_text, frame, self.marked)
            self.error = ""
        except FilterError as error:
            # The rows stay: a word that is half typed is invalid at every keystroke.
            self.error = str(error)
            ranks = [frame.ranks[r.rank] for r in table.rows if r.rank in frame.ranks]
            ranks.sort(key=lambda rank: rank.rank)
        column = next(c for c in table.columns if c.title == self.sort)
        table.context.take(frame)
        ranks.sort(key=column.key, reverse=self.reverse)
        table.sorted_by, table.reverse = self.sort, self.reverse
        shown = f"{len(ranks):,} of {len(frame.ranks):,}" if self.filter_text else f"{len(ranks):,}"
        also = f", filter {self.filter_text}" if self.filter_text else ""
        marks = f", {len(self.marked)} marked" if self.marked else ""
        table.entitle(f"ranks {shown}{also}{marks}")
        table.empty = (
            "no rank matches the filter; esc clears it" if self.filter_text else "no ranks"
        )
        table.show_ranks(frame, ranks)
        error_line = self.query_one("#filter-error", Static)
        if error_line.content != self.error:
            error_line.update(self.error)
        error_line.display = bool(self.error)

    def action_filter(self) -> None:
        field = self.query_one(Input)
        field.display = True
        # `focus()` acts some messages later; the next key must reach the field.
        self.set_focus(field)

    def on_input_changed(self, event: Input.Changed) -> None:
        self.filter_text = event.value.strip()
        self.draw_all()

    def on_input_submitted(self) -> None:
        self.leave_input()

    def leave_input(self) -> None:
        """Focuses the rows; an empty filter line is hidden."""
        self.query_one(Input).display = bool(self.filter_text)
        self.set_focus(self.query_one(RankTable))

    async def action_clear_or_back(self) -> None:
        field = self.query_one(Input)
        if self.filter_text or field.has_focus:
            field.value = self.filter_text = ""
            self.leave_input()
            self.draw_all()
        else:
            await self.run_action("app.back")

    def action_sort(self, by: int) -> None:
        """Sorts by the neighbouring visible column."""
        table = self.query_one(RankTable)
        titles = [column.title for column, _ in table.visible_columns(table.room)]
        index = titles.index(self.sort) if self.sort in titles else 0
        self.sort = titles[(index + by) % len(titles)]
        self.draw_all()

    def action_reverse(self) -> None:
        self.reverse = not self.reverse
        self.draw_all()

    @property
    def subject(self) -> int | None:
        return self.chosen

    @property
    def chosen(self) -> int | None:
        """The rank under the cursor."""
        row = self.query_one(RankTable).chosen
        return row.rank if row is not None else None

    def on_line_view_chosen(self, event: LineView.Chosen) -> None:
        table = self.query_one(RankTable)
        if event.sender is table and table.chosen is not None:
            self.post_message(OpenRank(table.chosen.rank))
