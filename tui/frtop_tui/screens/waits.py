"""The wait-for graph: whom all wait for, and below it who waits for that, directly or not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from frtop_probe.ring.rank_ranges import fold
from frtop_tui.diagnosis.model import Frame
from frtop_tui.screens.base import BACK, FrameScreen
from frtop_tui.screens.messages import OpenRank, OpenRanks
from frtop_tui.text.wait_tree import TreeRow
from frtop_tui.widgets.wait_tree_pane import WaitsNote, WaitTreePane


class WaitsScreen(FrameScreen):
    """Asks for the graph while it is open: frames carry it only then."""

    AUTO_FOCUS = "#waits"
    crumb = "waits"
    wants_trace = True
    BINDINGS: ClassVar[list[BindingType]] = [
        BACK,
    ]

    def panes(self) -> ComposeResult:
        yield WaitsNote()
        yield WaitTreePane()

    def draw(self, frame: Frame) -> None:
        self.query_one(WaitsNote).show(frame)
        pane = self.query_one(WaitTreePane)
        looking = self.why_no_answer or "looking who waits for whom"
        pane.empty = looking if frame.ranks else "no ranks yet"
        pane.show(frame)

    def on_line_view_chosen(self) -> None:
        pane = self.query_one(WaitTreePane)
        row = pane.chosen
        if row is None and pane.ranks:
            self._open(pane.ranks)
        elif row is None or row.box is None:
            pane.action_fold_or_unfold()
        elif row.count == 1:
            self.post_message(OpenRank(_first(row)))
        else:
            self.post_message(OpenRanks(f"rank:{row.box.ranks}"))

    def _open(self, ranks: Sequence[int]) -> None:
        if len(ranks) == 1:
            self.post_message(OpenRank(ranks[0]))
        else:
            self.post_message(OpenRanks(f"rank:{fold(sorted(ranks))}"))


def _first(row: TreeRow) -> int:
    assert row.box is not None
    return int(row.box.ranks)
