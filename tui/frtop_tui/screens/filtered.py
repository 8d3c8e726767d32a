"""The base of screens with a table that words filter and keys sort."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

from textual.binding import Binding, BindingType
from textual.widgets import Input

from frtop_tui.screens.base import FrameScreen
from frtop_tui.widgets.table import LineTable


class Filtered(Protocol):
    """Which rows a table shows, in which order."""

    filter_text: str
    reverse: bool

    def sort_by_neighbour(self, titles: Sequence[str], by: int) -> None:
        """Sorts by the column beside the current one."""


class FilteredScreen(FrameScreen):
    """The filter is edited above the keys, and applies at every keystroke."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "clear_or_back", "back", tooltip="clear the filter, then back",
                id="back"),
        Binding("less_than_sign", "sort(-1)", "sort", tooltip="by the previous column",
                id="sort.before"),
        Binding("greater_than_sign", "sort(1)", "sort", show=False, tooltip="by the next column",
                id="sort.next"),
        Binding("I", "reverse", "reverse", tooltip="reverse the order", id="sort.reverse"),
    ]  # fmt: skip
    view: Filtered

    @property
    def table(self) -> LineTable[Any]:
        raise NotImplementedError

    @property
    def _field(self) -> Input:
        return self.query_one("#filter", Input)

    def action_filter(self) -> None:
        self._field.display = True
        # `focus()` acts some messages later; the next key must reach the field.
        self.set_focus(self._field)

    def on_input_changed(self, event: Input.Changed) -> None:
        self.view.filter_text = event.value.strip()
        self.draw_all()

    def on_input_submitted(self) -> None:
        self.leave_input()

    def leave_input(self) -> None:
        """Focuses the rows, and hides an empty filter line."""
        self._field.display = bool(self.view.filter_text)
        self.set_focus(self.table)

    async def action_clear_or_back(self) -> None:
        if self.view.filter_text or self._field.has_focus:
            self._field.value = self.view.filter_text = ""
            self.leave_input()
            self.draw_all()
        else:
            await self.run_action("app.back")

    def action_sort(self, by: int) -> None:
        """Sorts by the neighbouring visible column."""
        titles = [column.title for column, _ in self.table.visible_columns(self.table.room)]
        self.view.sort_by_neighbour(titles, by)
        self.draw_all()

    def action_reverse(self) -> None:
        self.view.reverse = not self.view.reverse
        self.draw_all()
