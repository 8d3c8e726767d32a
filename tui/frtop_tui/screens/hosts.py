"""All hosts: who is heard, what is wrong with the others, and what one may do there."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.judged import Frame
from frtop_tui.screens.base import FrameScreen, OpenRanks
from frtop_tui.widgets.hosts import HostPane, HostRow, HostTable


def filter_of(row: HostRow) -> str:
    """Words of a filter are split at spaces, and brackets mean several hosts."""
    name = row.host.name
    plain = not set(name) & set(" [],!")
    return f"host:{name}" if plain or not row.ranks else f"rank:{fold(row.ranks)}"


class HostsScreen(FrameScreen):
    """The table, and below it the host under the cursor with its problem in full."""

    AUTO_FOCUS = "#hosts"
    crumb = "hosts"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.back", "back", tooltip="to where one came from", id="back"),
    ]

    def panes(self) -> ComposeResult:
        yield HostTable()
        yield HostPane()

    def draw(self, frame: Frame) -> None:
        self.query_one(HostTable).show_hosts(frame)
        self.draw_host()

    def draw_host(self) -> None:
        self.query_one(HostPane).show(self.query_one(HostTable).chosen)

    def on_line_view_moved(self) -> None:
        self.draw_host()

    def on_line_view_chosen(self) -> None:
        row = self.query_one(HostTable).chosen
        if row is not None:
            self.post_message(OpenRanks(filter_of(row)))
