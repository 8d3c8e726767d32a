"""Where everybody is: the stacks of all ranks, or of the marked ones, merged."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from frtop_tui.diagnosis.model import Frame
from frtop_tui.screens.base import FrameScreen, TakeStacks
from frtop_tui.widgets.stack_tree import StackTree
from frtop_tui.widgets.wording import calm, ranks_word


class StacksScreen(FrameScreen):
    """Asks for stacks when it opens, and again on `b`."""

    AUTO_FOCUS = "#tree"
    crumb = "stacks"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.back", "back", tooltip="to where one came from", id="back"),
        Binding("b", "take", "stacks again", tooltip="take the stacks anew", id="stacks.take"),
    ]

    def __init__(self, marked: set[int]) -> None:
        super().__init__(marked)
        self.only = frozenset(marked)
        """Marks of the moment it was opened: what it shows does not change under the eye."""
        self._asked = False

    def panes(self) -> ComposeResult:
        yield StackTree()

    def chosen(self, frame: Frame) -> list[int]:
        """Ranks whose stacks are shown, including those nobody has heard of."""
        if self.only:
            return sorted(self.only)
        world = frame.job.world_size if frame.job else 0
        return sorted({*frame.ranks, *range(world)})

    def draw(self, frame: Frame) -> None:
        ranks = self.chosen(frame)
        if not self._asked and ranks:
            self._asked = True
            if not self.barred("take"):
                self.action_take()
        tree = self.query_one(StackTree)
        tree.show(frame, ranks)
        whose = "of marked ranks" if self.only else "of all ranks"
        merged = tree.merged
        if merged is not None:
            seen = f"{merged.ranks:,} of {ranks_word(len(ranks))}"
            old = f", up to {calm(merged.age_s(frame.now_ns))} old" if merged.ranks else ""
            tree.entitle(f"stacks {whose}: {seen}{old}")

    def action_take(self) -> None:
        if self.frame is not None and self.may("take"):
            ranks = [n for n in self.chosen(self.frame) if n in self.frame.ranks]
            if ranks:
                self.post_message(TakeStacks(ranks))
