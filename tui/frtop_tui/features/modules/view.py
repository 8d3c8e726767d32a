"""How many ops each module issued, in which phase, as a tree."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.modules.pane import ModuleTreePane, NodeInFull
from frtop_tui.screens.base import BACK
from frtop_tui.screens.windowed import WINDOWS, WindowedScreen
from frtop_tui.text.module_words import TITLE, sum_words
from frtop_tui.text.statistics_words import (
    wanted_words,
    window_words,
)


class ModulesScreen(WindowedScreen):
    """The tree, and the module under the cursor in full."""

    AUTO_FOCUS = "#modules"
    crumb = "modules"
    BINDINGS: ClassVar[list[BindingType]] = [
        BACK,
        Binding("W", "window", "window", tooltip="60 s, 10 s, or as far back as rings reach",
                id="view.window"),
        Binding("plus", "unfold(1)", "unfold", tooltip="all modules one step deeper",
                id="fold.deeper"),
        Binding("minus", "unfold(-1)", "fold", show=False, tooltip="all modules one step less deep",
                id="fold.less_deep"),
    ]  # fmt: skip

    def __init__(self, marked: set[int]) -> None:
        super().__init__(marked, WINDOWS[-1])  # a rank that hangs issues nothing
        self._depth: int | None = None

    def panes(self) -> ComposeResult:
        yield ModuleTreePane()
        yield NodeInFull()

    def draw(self, frame: Frame) -> None:
        pane = self.query_one(ModuleTreePane)
        pane.show_modules(frame, self.why_no_answer)
        found = frame.screen_statistics
        wanted, is_here = wanted_words(self.window_s, found)
        if found is None or not pane.rows:
            pane.entitle(TITLE if frame.recorded is not None else f"{TITLE} · {wanted}")
        else:
            missing = f", {len(found.missing):,} missing" if found.missing else ""
            before = f"{TITLE} · ", f"{sum_words(found)}{missing} · "
            is_here = is_here or frame.recorded is not None
            pane.entitle_before(before, window_words(found) if is_here else wanted)
        self._draw_node()

    def action_unfold(self, by: int) -> None:
        """Shows the tree one step deeper, or less deep."""
        pane = self.query_one(ModuleTreePane)
        most = pane.deepest + 1
        now = most if self._depth is None else self._depth
        self._depth = max(0, min(most, now + by))
        pane.fold_to(self._depth)
        self._draw_node()

    def on_line_view_chosen(self) -> None:
        self.query_one(ModuleTreePane).toggle()

    def on_line_view_moved(self) -> None:
        self._draw_node()

    def _draw_node(self) -> None:
        self.query_one(NodeInFull).show(self.query_one(ModuleTreePane).in_full())
