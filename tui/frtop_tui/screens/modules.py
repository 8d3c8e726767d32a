"""Modules: which of them issued how many ops, in which phase, as a tree."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from frtop_tui.diagnosis.model import Frame
from frtop_tui.report.module_table import TITLE
from frtop_tui.screens.base import FrameScreen
from frtop_tui.screens.statistics import LONGEST_S, WINDOWS
from frtop_tui.widgets.module_tree_pane import ModuleTreePane
from frtop_tui.widgets.statistics_head import window_text


class ModulesScreen(FrameScreen):
    """Wants statistics while it is open."""

    AUTO_FOCUS = "#modules"
    crumb = "modules"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.back", "back", tooltip="previous screen", id="back"),
        Binding("w", "window", "window", tooltip="60 s, 10 s, or as far as rings reach",
                id="view.window"),
        Binding("plus", "level(1)", "levels", tooltip="one more level of the tree",
                id="level.more"),
        Binding("minus", "level(-1)", "levels", show=False, tooltip="one level less",
                id="level.less"),
    ]  # fmt: skip

    def __init__(self, marked: set[int]) -> None:
        super().__init__(marked)
        self._window_s = WINDOWS[-1]  # a rank that hangs issues nothing
        self._level: int | None = None

    def panes(self) -> ComposeResult:
        yield ModuleTreePane()

    @property
    def wanted_window(self) -> float | None:
        return self._window_s or LONGEST_S

    def draw(self, frame: Frame) -> None:
        pane = self.query_one(ModuleTreePane)
        pane.show_modules(frame.statistics)
        found = frame.statistics
        window = window_text(self._window_s) if self._window_s else "as far as rings reach"
        of = f"{len(found.ranks):,} ranks · " if found is not None else ""
        pane.entitle(f"{of}{TITLE if pane.rows else 'modules'} · wanted: {window}")

    def action_window(self) -> None:
        index = WINDOWS.index(self._window_s) + 1
        self._window_s = WINDOWS[index % len(WINDOWS)]
        self.draw_all()

    def action_level(self, by: int) -> None:
        """Unfolds one level more of the tree, or one less."""
        pane = self.query_one(ModuleTreePane)
        most = pane.deepest + 1
        now = most if self._level is None else self._level
        self._level = max(0, min(most, now + by))
        pane.fold_to(self._level)

    def on_line_view_chosen(self) -> None:
        self.query_one(ModuleTreePane).toggle()
