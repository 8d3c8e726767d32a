"""All ranks as a table: sorted, filtered, marked."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input, Static

from frtop_tui.diagnosis.model import Frame
from frtop_tui.screens.asking import to_ask
from frtop_tui.screens.base import FrameScreen, OpenRank, OpenStacks, OpenTensors
from frtop_tui.screens.filter import FilterError, matching
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.rank_table import RankTable


class RanksScreen(FrameScreen):
    """The filter is typed in the last line but one and acts at once."""

    AUTO_FOCUS = "#ranks"
    crumb = "ranks"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "clear_or_back", "back", tooltip="clears a filter first", id="back"),
        Binding("slash", "filter", "filter", tooltip="rank: host: group: late !", id="filter"),
        Binding("less_than_sign", "sort(-1)", "sort", tooltip="by column before", id="sort.before"),
        Binding(
            "greater_than_sign",
            "sort(1)",
            "sort",
            show=False,
            tooltip="by next column",
            id="sort.next",
        ),
        Binding("I", "reverse", "reverse", tooltip="turn the order around", id="sort.reverse"),
        Binding("b", "stacks", "stacks", tooltip="take and merge stacks", id="stacks.take"),
        Binding("t", "tensors", "tensors", tooltip="look into what is being reduced", id="tensors"),
    ]

    def __init__(self, marked: set[int], filter_text: str = "", *, editing: bool = False) -> None:
        super().__init__(marked)
        self.filter_text = filter_text
        self.wrong = ""
        self.sort = "posture"
        self.reverse = False
        self.editing = editing

    def panes(self) -> ComposeResult:
        yield RankTable(self.marked, id="ranks", classes="pane")
        yield Static(id="wrong", markup=False)
        yield Input(
            self.filter_text,
            placeholder="rank:0-7,64  host:node[0-3]  group:tp  late  !late",
            id="filter",
            compact=True,
            select_on_focus=False,
        )

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
            self.wrong = ""
        except FilterError as error:
            # The rows stay as they were: half a word is wrong at every keystroke.
            self.wrong = str(error)
            ranks = [frame.ranks[r.rank] for r in table.rows if r.rank in frame.ranks]
            ranks.sort(key=lambda rank: rank.rank)
        column = next(c for c in table.columns if c.title == self.sort)
        table.at.take(frame)
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
        wrong = self.query_one("#wrong", Static)
        if wrong.content != self.wrong:
            wrong.update(self.wrong)
        wrong.display = bool(self.wrong)

    def action_filter(self) -> None:
        field = self.query_one(Input)
        field.display = True
        # At once, where `focus()` comes some messages later: what is typed next is for it.
        self.set_focus(field)

    def on_input_changed(self, event: Input.Changed) -> None:
        self.filter_text = event.value.strip()
        self.draw_all()

    def on_input_submitted(self) -> None:
        self.leave_input()

    def leave_input(self) -> None:
        """Back to the rows; an empty filter line goes out of the way."""
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
        """To the neighbouring column among those in sight."""
        table = self.query_one(RankTable)
        titles = [column.title for column, _ in table.seen(table.room)]
        index = titles.index(self.sort) if self.sort in titles else 0
        self.sort = titles[(index + by) % len(titles)]
        self.draw_all()

    def action_reverse(self) -> None:
        self.reverse = not self.reverse
        self.draw_all()

    def action_stacks(self) -> None:
        self.post_message(OpenStacks())

    def action_tensors(self) -> None:
        row = self.query_one(RankTable).chosen
        if row is not None and self.frame is not None and self.may("tensors"):
            self.post_message(OpenTensors(to_ask(self.frame, row.rank), row.rank))

    def on_line_view_chosen(self, event: LineView.Chosen) -> None:
        table = self.query_one(RankTable)
        if event.sender is table and table.chosen is not None:
            self.post_message(OpenRank(table.chosen.rank))
