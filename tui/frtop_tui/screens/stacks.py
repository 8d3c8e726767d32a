"""The stacks of all ranks, or of the marked ones, merged into one tree."""

from __future__ import annotations

from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.units import counted, live_duration
from frtop_tui.screens.availability import why_unavailable
from frtop_tui.screens.base import BACK, FrameScreen
from frtop_tui.screens.messages import Do
from frtop_tui.widgets.stack_tree import StackTree

STILL_NS: Final = 10_000_000_000
"""If no stacks arrive for this long, the missing ones are given up."""


class StacksScreen(FrameScreen):
    """Takes the stacks when it opens, and again on `b`."""

    AUTO_FOCUS = "#tree"
    crumb = "stacks"
    BINDINGS: ClassVar[list[BindingType]] = [
        BACK,
        Binding("b", "take", "stacks again", tooltip="take the stacks again", id="stacks.take"),
    ]

    def __init__(self, marked: set[int]) -> None:
        super().__init__(marked)
        self.only = frozenset(marked)
        """Ranks marked when the screen opened; later marks do not change the screen."""
        self._requested = False
        self._asked: dict[int, int] = {}
        """When each rank's previous stacks were taken, for those being taken now."""
        self._arrived = self._arrived_ns = 0  # how many, and when the last ones did

    def panes(self) -> ComposeResult:
        yield StackTree()

    def shown_ranks(self, frame: Frame) -> list[int]:
        """The marked ranks, else all ranks of the job, with those that never reported."""
        if self.only:
            return sorted(self.only)
        world = frame.job.world_size if frame.job else 0
        return sorted({*frame.ranks, *range(world)})

    def request(self, frame: Frame) -> None:
        """Takes the stacks once, with the first frame that has ranks."""
        if not self._requested and self.shown_ranks(frame):
            self._requested = True
            if not why_unavailable("take", frame):
                self._take(frame)

    def draw(self, frame: Frame) -> None:
        ranks = self.shown_ranks(frame)
        tree = self.query_one(StackTree)
        tree.show(frame, ranks)
        subject = "marked ranks" if self.only else "all ranks"
        merged = tree.merged
        if merged is not None:
            count = f"{merged.ranks:,} of {counted(len(ranks), 'rank')}"
            age = f", up to {live_duration(merged.age_s(frame.now_ns))} old"
            rest = self._progress(frame) or (age if merged.ranks else "")
            tree.entitle(f"stacks of {subject}: {count}{rest}")

    def _progress(self, frame: Frame) -> str:
        """How many stacks have arrived; "" if no more are expected."""
        views = [view for view in map(frame.ranks.get, self._asked) if view and not view.exit_info]
        arrived = sum(view.stacks_taken_ns != self._asked[view.rank] for view in views)
        if arrived != self._arrived:
            self._arrived, self._arrived_ns = arrived, frame.now_ns
        if arrived == len(views) or frame.now_ns - self._arrived_ns >= STILL_NS:
            self._asked.clear()
            return ""
        if self.why_no_answer:
            return f"; {self.why_no_answer}"
        return f"; taking: {arrived:,} of {len(views):,}"

    def action_take(self) -> None:
        if self.frame is not None and self.check_available("take"):
            self._take(self.frame)

    def _take(self, frame: Frame) -> None:
        ranks = [number for number in self.shown_ranks(frame) if number in frame.ranks]
        if ranks:
            self._asked = {rank: frame.ranks[rank].stacks_taken_ns for rank in ranks}
            self._arrived, self._arrived_ns = 0, frame.now_ns
            self.post_message(Do(wire.SnapshotRequest(), ranks))
