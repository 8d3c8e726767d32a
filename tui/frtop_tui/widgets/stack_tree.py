"""The merged stacks of many ranks as a tree, with the ranks of each class beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from frtop_probe.ring.rank_ranges import fold
from frtop_probe.wire import Snapshot
from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.stack_frames import basename, is_user_code
from frtop_tui.job.units import counted
from frtop_tui.text.merged_stacks import (
    FrameKey,
    MergedStacks,
    TreeLine,
    merge_frame,
    shared_op,
    tree_lines,
)
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, clip, fit, plain, shorten_ranks, wrap


class StackTree(LineView):
    """Small classes first. `enter` unfolds a chain of frames, and folds it again."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "enter,space",
            "toggle_fold",
            "unfold",
            tooltip="show or hide the frames of a chain",
            id="tree.open",
        ),
    ]

    def __init__(self) -> None:
        super().__init__(id="tree", classes="pane", has_cursor=True)
        self.entitle("stacks")
        self.merged: MergedStacks | None = None
        self.unfolded: set[tuple[FrameKey, ...]] = set()
        self._tree: list[TreeLine] = []
        self._ops: dict[int, str] = {}
        self._snapshots: list[Snapshot | None] = []

    def show(self, frame: Frame, ranks: Sequence[int]) -> None:
        """Merges only if a snapshot is new: thousands of stacks take time."""
        views = map(frame.ranks.get, ranks)
        snapshots = [view.snapshot if view is not None else None for view in views]
        if self.merged is None or not _same(snapshots, self._snapshots):
            self._snapshots = snapshots
            self.merged = merge_frame(frame, ranks)
            self._build_tree()
            self._ops = {id(line.node): shared_op(frame, line.node) for line in self._tree}
        self.redraw()

    def _build_tree(self) -> None:
        if self.merged is not None:
            self._tree = tree_lines(self.merged.roots, self.unfolded)

    def content(self, width: int) -> Sequence[Line]:
        merged = self.merged
        if merged is None:
            return ()
        folded = {id(e.node): fold(e.node.ranks) for e in self._tree if e.node is e.head}
        names = min(max(map(len, folded.values()), default=0), max(12, min(44, width // 4)))
        rows = [
            self._draw_line(line, shorten_ranks(folded.get(id(line.node), ""), names), names, width)
            for line in self._tree
        ]
        for why, ranks in merged.missing:
            listed = shorten_ranks(fold(ranks), width // 3)
            label = f"no stack  {counted(len(ranks), 'rank')} {listed}: "
            rows += wrap(why, width, "warn", (label, "strong"))
        return rows or [plain("no ranks to show", "dim")]

    def _draw_line(self, line: TreeLine, label: str, names: int, width: int) -> Line:
        first = line.node is line.head
        node = line.node
        count = f"{len(node.ranks):>5} " if first else "      "
        lead: Line = ((count, "strong"), (fit(label, names) + "  ", ""))
        indent = "  " * line.depth + ("+ " if first and line.depth else "  " * (line.depth > 0))
        if line.hidden:
            words = f"{indent}… {counted(line.hidden, 'frame')}"
            return clip((*lead, (words, "dim")), width)
        tone = "strong" if is_user_code(node.frame) else ""
        op = self._ops.get(id(node), "")
        return clip(
            (
                *lead,
                (indent + node.frame.function, tone),
                (f"  waits in {op}" if op else "", "warn"),
                (f"  {basename(node.frame)}", "" if tone else "dim"),
            ),
            width,
        )

    def action_toggle_fold(self) -> None:
        if self.cursor < len(self._tree):
            self.unfolded ^= {self._tree[self.cursor].head.path}
            self._build_tree()
            self.redraw()


def _same(new: Sequence[Snapshot | None], old: Sequence[Snapshot | None]) -> bool:
    return len(new) == len(old) and all(a is b for a, b in zip(new, old, strict=True))
