"""The wait-for graph: root causes at the top, and below each the ranks that wait for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from frtop_probe.ring.rank_ranges import unfold
from frtop_tui.diagnosis.model import Frame
from frtop_tui.screens.base import BACK, FrameScreen
from frtop_tui.screens.contributed import rank_keys
from frtop_tui.screens.messages import open_ranks
from frtop_tui.widgets.wait_tree_pane import WaitsNote, WaitTreePane


class WaitsScreen(FrameScreen):
    """Asks for the graph while it is open: only then frames have it."""

    AUTO_FOCUS = "#waits"
    crumb = "waits"
    wants_trace = True
    BINDINGS: ClassVar[list[BindingType]] = [BACK, *rank_keys()]

    @property
    def subject(self) -> int | None:
        return next(iter(self._ranks), None)

    def panes(self) -> ComposeResult:
        yield WaitsNote()
        yield WaitTreePane()

    def draw(self, frame: Frame) -> None:
        pane = self.query_one(WaitTreePane)
        looking = self.why_no_answer or "finding out who waits for whom"
        pane.empty = looking if frame.ranks else "no ranks yet"
        pane.show(frame)
        self.query_one(WaitsNote).show(frame, pane.rows)

    def on_line_view_chosen(self) -> None:
        if self._ranks:
            self.post_message(open_ranks(self._ranks))
        else:
            self.query_one(WaitTreePane).action_fold_or_unfold()

    @property
    def _ranks(self) -> Sequence[int]:
        """The ranks of the line under the cursor."""
        if not self.query(WaitTreePane):
            return ()
        pane = self.query_one(WaitTreePane)
        row = pane.chosen
        return unfold(row.box.ranks) if row is not None and row.box else pane.ranks
