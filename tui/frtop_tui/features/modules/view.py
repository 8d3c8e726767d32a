"""How many ops each module issued, in which phase, as a tree."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from frtop_tui.diagnosis.model import Frame
from frtop_tui.features.modules.pane import ModuleTreePane, NodeInFull
from frtop_tui.screens.base import BACK, FrameScreen
from frtop_tui.text.module_words import TITLE, sum_words
from frtop_tui.text.statistics_words import (
    LONGEST_S,
    OF_THE_FILE,
    WINDOWS,
    next_window,
    wanted_words,
    window_words,
)


class ModulesScreen(FrameScreen):
    """Asks for statistics while it is open."""

    AUTO_FOCUS = "#modules"
    crumb = "modules"
    BINDINGS: ClassVar[list[BindingType]] = [
        BACK,
        Binding("w", "window", "window", tooltip="60 s, 10 s, or as far back as rings reach",
                id="view.window"),
        Binding("plus", "unfold(1)", "unfold", tooltip="all modules one step deeper",
                id="fold.deeper"),
        Binding("minus", "unfold(-1)", "fold", show=False, tooltip="all modules one step less deep",
                id="fold.less_deep"),
    ]  # fmt: skip

    def __init__(self, marked: set[int]) -> None:
        super().__init__(marked)
        self._window_s = WINDOWS[-1]  # a rank that hangs issues nothing
        self._depth: int | None = None

    def panes(self) -> ComposeResult:
        yield ModuleTreePane()
        yield NodeInFull()

    @property
    def wanted_window(self) -> float | None:
        return self._window_s or LONGEST_S

    def draw(self, frame: Frame) -> None:
        pane = self.query_one(ModuleTreePane)
        pane.show_modules(frame, self.why_no_answer)
        found = frame.screen_statistics
        wanted, is_here = wanted_words(self._window_s, found)
        if found is None or not pane.rows:
            pane.entitle(TITLE if frame.recorded is not None else f"{TITLE} · {wanted}")
        else:
            missing = f", {len(found.missing):,} missing" if found.missing else ""
            before = f"{TITLE} · ", f"{sum_words(found)}{missing} · "
            is_here = is_here or frame.recorded is not None
            pane.entitle_before(before, window_words(found) if is_here else wanted)
        self._draw_node()

    def why_unavailable(self, action: str) -> str:
        if action == "window" and self.frame is not None and self.frame.recorded is not None:
            return OF_THE_FILE
        return super().why_unavailable(action)

    def action_window(self) -> None:
        if not self.check_available("window"):
            return
        self._window_s = next_window(self._window_s)
        self.draw_all()

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
