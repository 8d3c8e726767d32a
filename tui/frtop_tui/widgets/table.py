"""A live table with fixed-width columns; only the visible rows are built."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, Literal, TypeVar

from textual.binding import Binding, BindingType
from textual.strip import Strip

from frtop_tui.widgets.lines import LazyLines, LineView
from frtop_tui.widgets.spans import Line, Span, fit, fit_middle, plain

RowT = TypeVar("RowT")
RANK_KEYS: Final = (
    Binding("enter", "choose", "open", tooltip="show the rank's op queue, stacks and process",
            id="rank.open"),
    Binding("space", "mark", "mark", tooltip="mark the rank for merged stacks", id="rank.mark"),
)  # fmt: skip
"""Keys of all that has a cursor on ranks."""
WIDE: Final = 110
"""Table width, in cells, from which columns take their `wide` width."""
WIDEST: Final = 56
"""Most cells of a column that takes the rest, unless it is last: keeps its neighbours close."""


@dataclass(frozen=True, slots=True)
class Column(Generic[RowT]):
    """`cell` returns text and tone, `key` the sort key; width 0 takes the rest.

    Tables with fewer cells than `needs` hide the column.
    """

    title: str
    width: int
    cell: Callable[[RowT], Span]
    key: Callable[[RowT], Any]  # any type that can be compared
    right: bool = False
    needs: int = 0
    wide: int = 0
    """Its width in tables from `WIDE` cells on; 0 means no change."""
    least: int = 8
    """Columns are left out before the one that takes the rest gets fewer cells."""
    cut: Literal["end", "middle"] = "end"
    """Where long texts are cut."""


def neighbour(titles: Sequence[str], title: str, by: int) -> str:
    """The title beside this one; the first follows the last."""
    index = titles.index(title) if title in titles else 0
    return titles[(index + by) % len(titles)]


class LineTable(LineView, Generic[RowT]):
    """Rows below a fixed line of titles; the cursor is on line 1 or below."""

    def __init__(self, columns: Sequence[Column[RowT]], empty: str, **keywords: str | None) -> None:
        super().__init__(has_cursor=True, **keywords)
        self.columns = tuple(columns)
        self.rows: Sequence[RowT] = ()
        self.empty = empty
        self.sorted_by = ""
        self.reverse = False
        self.cursor = 1
        self.suffices: Mapping[str, int] = {}
        """Cells that are enough for a column's texts, by title, if measured."""

    def show(
        self,
        rows: Sequence[RowT],
        same: Callable[[RowT], object] | None = None,
        *,
        sticks: bool = False,
    ) -> None:
        """Shows the rows in this order.

        Args:
            rows: all of them.
            same: equal for a row now and before, so the cursor follows it. On the first line the
            cursor stays, to show the first row.
            sticks: it follows its row from the first line, too.
        """
        chosen = self.chosen if same is not None and (self.cursor > 1 or sticks) else None
        self.rows = rows
        if chosen is not None and same is not None:
            wanted = same(chosen)
            lines = (n for n, row in enumerate(rows, 1) if same(row) == wanted)
            self.move_to(next(lines, self.cursor))
        self.redraw()

    @property
    def chosen(self) -> RowT | None:
        """The row under the cursor."""
        index = self.cursor - 1
        return self.rows[index] if 0 <= index < len(self.rows) else None

    def start_at(self, y: int) -> None:
        """Puts the cursor on a line of rows that have not been drawn yet."""
        self.cursor = y
        # A key may move the cursor first: scroll to where it is then.
        self.call_after_refresh(lambda: self.move_to(self.cursor))

    def visible_columns(self, width: int) -> list[tuple[Column[RowT], int]]:
        """The columns that fit, with their widths."""
        columns = [column for column in self.columns if width >= column.needs]
        widths = [self._cells(column, width) for column in columns]
        rest = width - sum(widths) - 2 * (len(columns) - 1)
        least = max((column.least for column in columns if not column.width), default=0)
        for n in reversed(range(len(columns))):  # the last ones are the least essential
            if rest < least and columns[n].needs:
                rest += widths.pop(n) + 2
                del columns[n]
        if columns and columns[-1].width:
            rest = min(WIDEST, rest)
        rest = max(8, rest)
        return [(column, cells or rest) for column, cells in zip(columns, widths, strict=True)]

    def _cells(self, column: Column[RowT], width: int) -> int:
        most = column.wide if column.wide and width >= WIDE else column.width
        # The sign of the order may follow a title.
        return min(most, max(self.suffices.get(column.title, most), len(column.title) + 2))

    def content(self, width: int) -> Sequence[Line]:
        self.cursor = max(1, self.cursor)
        columns = self.visible_columns(width)
        return LazyLines(lambda: len(self.rows) + 1, lambda y: self.row_line(y, columns))

    def row_line(self, y: int, columns: Sequence[tuple[Column[RowT], int]]) -> Line:
        if not 0 < y <= len(self.rows):
            return ()
        row = self.rows[y - 1]
        spans: list[Span] = []
        for column, cells in columns:
            text, tone = column.cell(row)
            if column.cut == "middle":
                text = fit_middle(text, cells)
            spans.append((fit(text, cells, right=column.right), tone))
            spans.append(("  ", ""))
        return tuple(spans[:-1])

    def _titles(self, width: int) -> Line:
        if not self.rows:
            return plain(self.empty, "dim")
        spans: list[Span] = []
        for column, cells in self.visible_columns(width):
            arrow = ("^" if self.reverse else "v") if column.title == self.sorted_by else ""
            tone = "strong" if arrow else "dim"
            spans.append((fit(f"{column.title} {arrow}".rstrip(), cells, right=column.right), tone))
            spans.append(("  ", ""))
        return tuple(spans)

    def _line(self, y: int) -> Line:
        # The titles are drawn over the first visible line.
        if y == self.scroll_offset.y:
            return self._titles(self.room)
        return super()._line(y)

    def render_line(self, y: int) -> Strip:
        if y == 0:
            return self._strip(self._titles(self.room), self.room, chosen=False)
        return super().render_line(y)

    def click_at(self, x: int, y: int) -> bool:
        return y > 0 and super().click_at(x, y)

    def move_to(self, y: int) -> None:
        y = max(1, y)
        top = self.scroll_offset.y
        if 0 < y <= top:
            # The titles cover one line: scroll one line further.
            self.scroll_to(y=y - 1, animate=False)
        super().move_to(y)


class RankRows(LineTable[RowT]):
    """Rows about ranks, which can be marked; the cursor stays on its rank."""

    BINDINGS: ClassVar[list[BindingType]] = [*RANK_KEYS]

    def __init__(
        self, columns: Sequence[Column[RowT]], empty: str, marked: set[int], **keywords: str | None
    ) -> None:
        super().__init__(columns, empty, **keywords)
        self.marked = marked

    def number(self, row: RowT) -> int:
        """The rank of a row."""
        raise NotImplementedError

    def action_mark(self) -> None:
        if self.chosen is not None:
            self.marked ^= {self.number(self.chosen)}
            self.action_down()
            self.redraw()


def rank_column(number: Callable[[RowT], int], marked: Collection[int]) -> Column[RowT]:
    """The ranks; a star marks a rank."""

    def cell(row: RowT) -> Span:
        is_marked = number(row) in marked
        return (f"{'*' * is_marked}{number(row)}", "mark" if is_marked else "strong")

    return Column("rank", 6, cell, number, right=True)
