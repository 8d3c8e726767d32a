"""The merged stacks of many ranks, drawn as a tree with folded ranks beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from frtop_probe.ring.rank_ranges import fold
from frtop_probe.wire import Snapshot
from frtop_tui.diagnosis.judged import Frame
from frtop_tui.job.frames import basename, is_yours
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, clip, fit, plain, wrap
from frtop_tui.widgets.stacks import Entry, Merged, Step, entries, merge_frame, waits_in
from frtop_tui.widgets.wording import cut, ranks_word


class StackTree(LineView):
    """Small classes first. `enter` shows a folded chain in full, and folds it again."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "enter,space", "turn", "unfold", tooltip="a chain of frames, or fold it", id="tree.open"
        ),
    ]

    def __init__(self) -> None:
        super().__init__(id="tree", classes="pane", has_cursor=True)
        self.entitle("stacks")
        self.merged: Merged | None = None
        self.turned: set[tuple[Step, ...]] = set()
        self._entries: list[Entry] = []
        self._notes: dict[int, str] = {}
        self._looks: list[Snapshot | None] = []

    def show(self, frame: Frame, ranks: Sequence[int]) -> None:
        """Merges again only when somebody was looked at anew: thousands of stacks cost."""
        looks = [view.snapshot if (view := frame.ranks.get(n)) is not None else None for n in ranks]
        if self.merged is None or not _same(looks, self._looks):
            self._looks = looks
            self.merged = merge_frame(frame, ranks)
            self._unfold()
            self._notes = {id(entry.node): waits_in(frame, entry.node) for entry in self._entries}
        self.redraw()

    def _unfold(self) -> None:
        if self.merged is not None:
            self._entries = entries(self.merged.roots, self.turned)

    def content(self, width: int) -> Sequence[Line]:
        merged = self.merged
        if merged is None:
            return ()
        folded = {id(e.node): fold(e.node.ranks) for e in self._entries if e.node is e.head}
        names = min(max(map(len, folded.values()), default=0), max(12, min(44, width // 4)))
        rows = [
            self._entry_line(entry, cut(folded.get(id(entry.node), ""), names), names, width)
            for entry in self._entries
        ]
        for why, ranks in merged.missing:
            label = f"no stack  {ranks_word(len(ranks))} {cut(fold(ranks), width // 3)}: "
            rows += wrap(why, width, "warn", (label, "strong"))
        return rows or [plain("no ranks to show", "dim")]

    def _entry_line(self, entry: Entry, label: str, names: int, width: int) -> Line:
        first = entry.node is entry.head
        node = entry.node
        count = f"{len(node.ranks):>5} " if first else "      "
        lead: Line = ((count, "strong"), (fit(label, names) + "  ", ""))
        indent = "  " * entry.depth + ("+ " if first and entry.depth else "  " * (entry.depth > 0))
        if entry.hidden:
            words = f"{indent}… {entry.hidden} frame{'s' * (entry.hidden > 1)}"
            return clip((*lead, (words, "dim")), width)
        tone = "strong" if is_yours(node.frame) else ""
        note = self._notes.get(id(node), "")
        return clip(
            (
                *lead,
                (indent + node.frame.function, tone),
                (f"  waits in {note}" if note else "", "warn"),
                (f"  {basename(node.frame)}", "" if tone else "dim"),
            ),
            width,
        )

    def action_turn(self) -> None:
        if self.cursor < len(self._entries):
            self.turned ^= {self._entries[self.cursor].head.path}
            self._unfold()
            self.redraw()


def _same(new: Sequence[Snapshot | None], old: Sequence[Snapshot | None]) -> bool:
    return len(new) == len(old) and all(a is b for a, b in zip(new, old, strict=True))
