"""The wait-for graph: root causes at the top, and below each the ranks that wait for it."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from frtop_probe.ring.rank_ranges import unfold
from frtop_tui.diagnosis.model import Frame
from frtop_tui.screens.base import BACK, FrameScreen
from frtop_tui.screens.messages import open_ranks
from frtop_tui.widgets.wait_tree_pane import WaitsNote, WaitTreePane


class WaitsScreen(FrameScreen):
    """Asks for the graph while it is open: only then frames have it."""

    AUTO_FOCUS = "#waits"
    crumb = "waits"
    wants_trace = True
    BINDINGS: ClassVar[list[BindingType]] = [BACK]

    def panes(self) -> ComposeResult:
        yield WaitsNote()
        yield WaitTreePane()

    def draw(self, frame: Frame) -> None:
        self.query_one(WaitsNote).show(frame)
        pane = self.query_one(WaitTreePane)
        looking = self.why_no_answer or "finding out who waits for whom"
        pane.empty = looking if frame.ranks else "no ranks yet"
        pane.show(frame)

    def on_line_view_chosen(self) -> None:
        pane = self.query_one(WaitTreePane)
        row = pane.chosen
        if row is None and pane.ranks:
            self.post_message(open_ranks(pane.ranks))
        elif row is None or row.box is None:
            pane.action_fold_or_unfold()
        else:
            self.post_message(open_ranks(unfold(row.box.ranks)))
