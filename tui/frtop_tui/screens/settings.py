"""Versions and settings of all ranks, and which of them differ: no stack shows that."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.model import Frame
from frtop_tui.screens.base import BACK, FrameScreen
from frtop_tui.screens.messages import OpenRank, OpenRanks
from frtop_tui.widgets.settings_pane import SettingsPane


class SettingsScreen(FrameScreen):
    """One list; `enter` goes to the ranks with a value."""

    AUTO_FOCUS = "#settings"
    crumb = "settings"
    BINDINGS: ClassVar[list[BindingType]] = [
        BACK,
    ]

    def panes(self) -> ComposeResult:
        yield SettingsPane()

    def draw(self, frame: Frame) -> None:
        self.query_one(SettingsPane).show(frame)

    def on_line_view_chosen(self) -> None:
        row = self.query_one(SettingsPane).chosen
        if row is None or not row.ranks:
            return
        if len(row.ranks) == 1:
            self.post_message(OpenRank(row.ranks[0]))
        else:
            self.post_message(OpenRanks(f"rank:{fold(row.ranks)}"))
