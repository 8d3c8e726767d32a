"""The pane of queues side by side; rows are built when they become visible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from frtop_tui.features.timeline.alignment import Alignment, RowKey
from frtop_tui.features.timeline.queue_cells import row_line, title_line
from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, clip, plain


class _Rows(Sequence[Line]):
    def __init__(self, table: QueueTable) -> None:
        self._table = table

    def __len__(self) -> int:
        return len(self._table.alignment)

    def __getitem__(self, y: int) -> Line:  # type: ignore[override]  # only lines, no slices
        table = self._table
        return row_line(table.alignment, y, table.room, table.now_ns, table.first)


class QueueTitle(LineView, can_focus=False):
    """The ranks above their columns."""

    def __init__(self) -> None:
        super().__init__(id="queue-title", classes="pane")
        self.line: Line = ()

    def content(self, width: int) -> Sequence[Line]:
        return (clip(self.line, width),)


class QueueTable(LineView):
    """A row per op; the cursor stays on its op, or on the newest one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "open", tooltip="show the rank of the column", id="queue.open"),
        Binding("left,h", "sideways(-1)", "left", show=False, tooltip="previous rank", id="left"),
        Binding("right,l", "sideways(1)", "right", show=False, tooltip="next rank", id="right"),
    ]

    def __init__(self) -> None:
        super().__init__(has_cursor=True, id="queues")
        self.alignment = Alignment((), (), ())
        self.now_ns: Sequence[int] = ()
        self.first: int | None = None
        self.chosen = 0
        self.empty = "no ops are known yet"
        self._is_in_view = False
        """Whether the table has scrolled to the cursor once; from then on keys do."""
        self._will_be = False
        """It scrolls there once it is drawn: a second time might undo what the mouse did since."""

    def content(self, width: int) -> Sequence[Line]:  # noqa: ARG002
        return _Rows(self) if len(self.alignment) else (plain(self.empty, "dim"),)

    @property
    def key(self) -> RowKey | None:
        """The op under the cursor; None on the last row, which follows the newest one."""
        rows = len(self.alignment)
        return self.alignment.keys[self.cursor] if self.cursor < rows - 1 else None

    def show(self, alignment: Alignment, first: int | None, now_ns: Sequence[int]) -> None:
        """Shows other rows, with the cursor on the same op."""
        had, key, before = bool(len(self.alignment)), self.key, self.cursor
        self.alignment, self.first, self.now_ns = alignment, first, now_ns
        self.chosen = min(self.chosen, max(0, len(alignment.lanes) - 1))
        if had and len(alignment):
            last = len(alignment) - 1
            places = range(len(alignment)) if key is not None else ()
            self.cursor = next((n for n in places if alignment.keys[n] == key), last)
        if (self.cursor != before or not self._is_in_view) and not self._will_be:
            # Older ops came above it, or it was put there before there was a layout.
            self._will_be = self.call_after_refresh(self._bring_into_view)
        self.redraw()

    def _bring_into_view(self) -> None:
        self._will_be = False
        self.move_to(self.cursor)
        self._is_in_view = bool(len(self.alignment) and self.scrollable_content_region.height)

    @property
    def titles(self) -> Line:
        return title_line(self.alignment.lanes, self.room, self.chosen)

    def action_sideways(self, by: int) -> None:
        self.chosen = max(0, min(self.chosen + by, len(self.alignment.lanes) - 1))
        self.post_message(self.Moved(self))
