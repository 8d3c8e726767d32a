"""The tree of modules with the ops that each issued, by phase; nodes fold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from textual.binding import Binding, BindingType

from frtop_tui.diagnosis.model import Frame
from frtop_tui.job.naming import folded
from frtop_tui.job.statistics import JobStatistics
from frtop_tui.job.units import byte_size
from frtop_tui.statistics.module_tree import ModuleNode, module_tree, phases_of
from frtop_tui.text.module_words import INDENT, SHORT, kinds_words, why_empty
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, Span, cells, wrap
from frtop_tui.widgets.table import Column, LineTable

_COUNT: Final = 11


class ModuleTreePane(LineTable[ModuleNode]):
    """Rebuilt once per answer; `enter` folds and unfolds a node."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "fold", tooltip="fold or unfold what is below",
                id="fold.toggle"),
    ]  # fmt: skip

    def __init__(self) -> None:
        super().__init__((), "", id="modules", classes="pane")
        self.folded: set[str] = set()
        self._of: JobStatistics | None = None
        self._top = module_tree(())

    def show_modules(self, frame: Frame, no_answer: str) -> None:
        """Shows the modules of the newest answer; `no_answer`: why none will be shown."""
        statistics = frame.screen_statistics
        self.empty = why_empty(frame, statistics, no_answer)
        if statistics is not self._of:
            self._of = statistics
            self._top = module_tree(statistics.modules if statistics is not None else ())
            self.columns = self._columns(phases_of(self._top))
            every = list(self._top.walk())
            self.suffices = {
                column.title: max((cells(column.cell(node)[0]) for node in every), default=0)
                for column in self.columns
                if column.width
            }
        self._show()

    def _show(self) -> None:
        self.show([*self._top.walk(frozenset(self.folded))] if self._top.children else ())

    def toggle(self) -> None:
        """Folds or unfolds what is below the cursor's node."""
        node = self.chosen
        if node is not None and node.path and node.children:
            self.folded ^= {node.path}
            self._show()

    def fold_to(self, depth: int) -> None:
        """Folds all nodes at this depth, and unfolds those above."""
        every = self._top.walk()
        self.folded = {node.path for node in every if node.depth >= depth and node.children}
        self._show()

    @property
    def deepest(self) -> int:
        """The largest depth of a node with children; -1 if there is none."""
        every = (node for node in self._top.walk() if node.children)
        return max((node.depth for node in every), default=-1)

    def _columns(self, phases: list[str]) -> tuple[Column[ModuleNode], ...]:
        return (
            Column("module", 0, self._module, lambda node: node.path, cut="middle"),
            *(
                Column(
                    SHORT.get(phase, phase), _COUNT, _cell_of(phase),
                    _count_of(phase), right=True,
                )
                for phase in phases
            ),
            Column("bytes", 10, lambda node: (byte_size(node.size() or None), ""), ModuleNode.size,
                   right=True, needs=70),
            Column("kinds", 34, lambda node: (kinds_words(node), "dim"), kinds_words, needs=110),
        )  # fmt: skip

    def in_full(self) -> str:
        """The node under the cursor: its path, its ranks, its ops."""
        node = self.chosen
        parts = (
            () if node is None else (node.path or node.name, folded(node.ranks), kinds_words(node))
        )
        return " · ".join(filter(None, parts))

    def _module(self, node: ModuleNode) -> Span:
        if not node.path:
            return node.name, "strong"
        sign = " " if not node.children else "+" if node.path in self.folded else "-"
        text = f"{INDENT * node.depth}{sign} {node.name}"
        return text, "" if node.own else "dim"


class NodeInFull(LineView, can_focus=False):
    """The chosen node in full, below the tree, which cuts long names."""

    def __init__(self) -> None:
        super().__init__(id="node-in-full")
        self.text = ""

    def show(self, text: str) -> None:
        self.text = text
        self.redraw()

    def content(self, width: int) -> Sequence[Line]:
        return wrap(self.text, width, "dim", (" ", ""))


def _count_of(phase: str) -> Callable[[ModuleNode], int]:
    return lambda node: node.count(phase)


def _cell_of(phase: str) -> Callable[[ModuleNode], Span]:
    def cell(node: ModuleNode) -> Span:
        count = node.count(phase)
        return (f"{count:,}" if count else "·"), "" if count else "dim"

    return cell
