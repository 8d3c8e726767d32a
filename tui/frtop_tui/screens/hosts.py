"""All hosts: which ones report, what is wrong with the others, and what our key may do."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.model import Frame
from frtop_tui.screens.base import BACK, FrameScreen
from frtop_tui.screens.messages import OpenRanks
from frtop_tui.widgets.host_pane import HostPane
from frtop_tui.widgets.host_table import HostRow, HostTable


def host_filter(row: HostRow) -> str:
    """The filter for a host's ranks: by rank if its name contains filter syntax."""
    name = row.host.name
    plain = not set(name) & set(" [],!")
    return f"host:{name}" if plain or not row.ranks else f"rank:{fold(row.ranks)}"


class HostsScreen(FrameScreen):
    """The table of hosts, and below it the host under the cursor in full."""

    AUTO_FOCUS = "#hosts"
    crumb = "hosts"
    BINDINGS: ClassVar[list[BindingType]] = [
        BACK,
        Binding(
            "space",
            "unfold",
            "unfold",
            tooltip="all gauges of the host, or the table again",
            id="host.unfold",
        ),
    ]

    def panes(self) -> ComposeResult:
        yield HostTable()
        yield HostPane()

    def draw(self, frame: Frame) -> None:
        ranks = (frame.ranks.get(rank) for rank in self.of_interest)
        first = next((rank.host for rank in ranks if rank is not None), "")
        if any(host.state != "reporting" for host in frame.hosts):
            first = ""  # hosts that do not report stay first: nobody knows what they hide
        self.query_one(HostTable).show_hosts(frame, first)
        self.draw_host()

    @property
    def shown_hosts(self) -> tuple[str, ...]:
        return self.query_one(HostTable).visible_hosts if self.query(HostTable) else ()

    def action_unfold(self) -> None:
        """Gives most of the screen to the host under the cursor, or to the table."""
        self.toggle_class("-unfolded")
        self.call_after_refresh(self.draw_all)

    def draw_host(self) -> None:
        row = self.query_one(HostTable).chosen
        ranks = self.frame.ranks if self.frame is not None and row is not None else {}
        named = row.host.name if row is not None else ""
        here = [view for view in ranks.values() if view.host == named]
        ended = [view.key for view in here if view.exit_info is not None]
        keys = {view.key: view.rank for view in here}
        self.query_one(HostPane).show(row, keys, ended)

    def on_line_view_moved(self) -> None:
        self.draw_host()

    def on_line_view_chosen(self) -> None:
        row = self.query_one(HostTable).chosen
        if row is not None:
            self.post_message(OpenRanks(host_filter(row)))
