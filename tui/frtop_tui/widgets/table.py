"""A live table of fixed-width columns: thousands of rows, of which only the seen exist."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from textual.strip import Strip

from frtop_tui.widgets.lines import LineView
from frtop_tui.widgets.spans import Line, Span, fit, plain

RowT = TypeVar("RowT")
WIDE: Final = 110
"""Cells from which columns may have more room than they need at 80."""
WIDEST: Final = 56
"""Most cells of the column that takes the rest: its neighbours should not be far away."""


@dataclass(frozen=True, slots=True)
class Column(Generic[RowT]):
    """`cell` gives text and tone, `key` what rows are sorted by; width 0 takes the rest.

    A column with `needs` is left out where the table has fewer cells than that.
    """

    title: str
    width: int
    cell: Callable[[RowT], Span]
    key: Callable[[RowT], Any]  # whatever can be compared with its like
    right: bool = False
    needs: int = 0
    wide: int = 0
    """Its width from `WIDE` cells on, if that is another."""


class _Rows(Sequence[Line], Generic[RowT]):
    """Row values drawn when they come into sight."""

    def __init__(self, table: LineTable[RowT], width: int) -> None:
        self._table = table
        self._seen = table.seen(width)

    def __len__(self) -> int:
        return len(self._table.rows) + 1

    def __getitem__(self, y: int) -> Line:  # type: ignore[override]  # only lines, no slices
        return self._table.row_line(y, self._seen)


class LineTable(LineView, Generic[RowT]):
    """Rows under a title line that stays; the cursor is on line 1 or below."""

    def __init__(self, columns: Sequence[Column[RowT]], empty: str, **keywords: str | None) -> None:
        super().__init__(has_cursor=True, **keywords)
        self.columns = tuple(columns)
        self.rows: Sequence[RowT] = ()
        self.empty = empty
        self.sorted_by = ""
        self.reverse = False
        self.cursor = 1

    def show(self, rows: Sequence[RowT]) -> None:
        """Shows rows in the order given."""
        self.rows = rows
        self.redraw()

    @property
    def chosen(self) -> RowT | None:
        """The row under the cursor."""
        index = self.cursor - 1
        return self.rows[index] if 0 <= index < len(self.rows) else None

    def seen(self, width: int) -> list[tuple[Column[RowT], int]]:
        """Columns that have room, with their widths."""
        columns = [column for column in self.columns if width >= column.needs]
        widths = [c.wide if c.wide and width >= WIDE else c.width for c in columns]
        rest = max(8, min(WIDEST, width - sum(widths) - 2 * (len(columns) - 1)))
        return [(column, cells or rest) for column, cells in zip(columns, widths, strict=True)]

    def content(self, width: int) -> Sequence[Line]:
        self.cursor = max(1, self.cursor)
        return _Rows(self, width)

    def row_line(self, y: int, seen: Sequence[tuple[Column[RowT], int]]) -> Line:
        if not 0 < y <= len(self.rows):
            return ()
        row = self.rows[y - 1]
        spans: list[Span] = []
        for column, cells in seen:
            text, tone = column.cell(row)
            spans.append((fit(text, cells, right=column.right), tone))
            spans.append(("  ", ""))
        return tuple(spans[:-1])

    def _titles(self, width: int) -> Line:
        if not self.rows:
            return plain(self.empty, "dim")
        spans: list[Span] = []
        for column, cells in self.seen(width):
            arrow = ("^" if self.reverse else "v") if column.title == self.sorted_by else ""
            tone = "strong" if arrow else "dim"
            spans.append((fit(f"{column.title} {arrow}".rstrip(), cells, right=column.right), tone))
            spans.append(("  ", ""))
        return tuple(spans)

    def _line(self, y: int) -> Line:
        # The titles are drawn over the first line in sight, wherever one has scrolled to.
        if y == self.scroll_offset.y:
            return self._titles(self.room)
        return super()._line(y)

    def render_line(self, y: int) -> Strip:
        if y == 0:
            return self._strip(self._titles(self.room), self.room, chosen=False)
        return super().render_line(y)

    def move_to(self, y: int) -> None:
        y = max(1, y)
        top = self.scroll_offset.y
        if 0 < y <= top:
            # The line under the titles is hidden by them: show one more.
            self.scroll_to(y=y - 1, animate=False)
        super().move_to(y)
