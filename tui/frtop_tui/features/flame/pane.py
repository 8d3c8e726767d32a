"""Sampled stacks as a tree that folds: share, function, file and line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import ClassVar

from textual.binding import Binding, BindingType

from frtop_tui.features.flame.words import (
    RECORDER,
    FlameNode,
    FlameRow,
    SampledStacks,
    flame_rows,
    flame_tree,
    frame_parts,
    recorder_share,
)
from frtop_tui.job.naming import folded
from frtop_tui.job.units import percent
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, clip, plain, wrap

_BAR = 8


class FlamePane(LineView):
    """Threads are the roots. Differences between ranks stand beside their frame."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,space", "fold_or_unfold", "unfold", tooltip="show or hide what is below",
                id="flame.open"),
        Binding("right,l,plus", "fold(False)", "unfold", show=False,
                tooltip="show what is below", id="flame.unfold"),
        Binding("left,h,minus", "fold(True)", "fold", show=False,
                tooltip="hide what is below", id="flame.fold"),
    ]  # fmt: skip

    def __init__(self) -> None:
        super().__init__(id="flame", classes="pane", has_cursor=True)
        self.samples = SampledStacks()
        self.rows: list[FlameRow] = []
        self.progress = ""
        self._roots: list[FlameNode] = []
        self._totals: dict[int, int] = {}
        self._recorder = 0.0
        self._toggled: set[tuple[str, ...]] = set()

    def show(self, samples: SampledStacks, progress: str) -> None:
        """Rebuilds the tree only when stacks have arrived."""
        if samples is not self.samples:
            self.samples = samples
            self._roots, self._totals = flame_tree(samples.ranks)
            self._recorder = recorder_share(self._roots, self._totals)
        self.progress = progress
        self._grow()

    def _grow(self) -> None:
        chosen = self.rows[self.cursor].node.path if self.cursor < len(self.rows) else None
        self.rows = flame_rows(self._roots, self._totals, self._toggled)
        self.redraw()
        if chosen is not None:
            self.move_to(
                next((n for n, row in enumerate(self.rows) if row.node.path == chosen), self.cursor)
            )

    def content(self, width: int) -> Sequence[Line]:
        rows = [_line(row, width) for row in self.rows]
        reasons: dict[str, list[int]] = {}
        for rank in self.samples.ranks:
            if rank.text:
                reasons.setdefault(rank.text, []).append(rank.rank)
        for text, ranks in reasons.items():
            rows += wrap(text, width, "warn", (f"{folded(ranks)}: ", "strong"))
        if self._recorder:
            took = percent(self._recorder)
            text = f"{RECORDER} took {took} of this time, as shown in the tree"
            rows += wrap(text, width, "dim")
        if self.progress:
            rows += wrap(self.progress, width, "dim")
        return rows or [plain("nothing was sampled", "dim")]

    def action_fold_or_unfold(self) -> None:
        row = self.rows[self.cursor] if self.cursor < len(self.rows) else None
        if row is not None and row.folded is not None:
            self._toggled ^= {row.node.path}
            self._grow()

    def action_fold(self, fold: bool) -> None:
        row = self.rows[self.cursor] if self.cursor < len(self.rows) else None
        if row is not None and row.folded is not None and row.folded != fold:
            self.action_fold_or_unfold()


def _line(row: FlameRow, width: int) -> Line:
    function, file, number = frame_parts(row.node.name)
    mark = {True: "+ ", False: "- ", None: "  "}[row.folded]
    bar = "█" * round(row.share * _BAR)
    place = f"  {PurePath(file).name}:{number}" if file else ""
    library = "/site-packages/" in file or "/lib/python" in file
    tone = "dim" if library else "strong"
    return clip(
        (
            (f"{row.share:>6.1%} ", "strong"),
            (f"{bar:<{_BAR}} ", "moving"),
            ("  " * min(row.depth, 30), ""),
            (mark, "key"),
            (function or "?", tone),
            (place, "dim"),
            (f"  ≠ {row.differs}" if row.differs else "", "warn"),
        ),
        width,
    )
