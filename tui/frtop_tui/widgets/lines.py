"""The base widget: lines of styled text on Textual's Line API.

It repaints only cells that differ from what the terminal shows: a tick with thousands of live ranks
costs a few milliseconds and one kilobyte. Subclasses implement `content`; lines out of sight are
never built.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.markup import escape
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from frtop_tui.job.naming import printable
from frtop_tui.widgets.spans import FILLED, TONES, Line, cells, changed_columns, fit

NO_LINE: Line = ()
UNDRAWN: Final[Sequence[Line]] = []
"""The lines of a pane that has had no room yet."""
TONE_CLASSES = {f"tone--{tone}" for tone in TONES}
"""For the application: on widgets, Textual would compute them with every change of style."""


class LazyLines(Sequence[Line]):
    """Lines that are built when they become visible."""

    def __init__(self, count: Callable[[], int], line: Callable[[int], Line]) -> None:
        self._count, self._line = count, line

    def __len__(self) -> int:
        return self._count()

    def __getitem__(self, y: int) -> Line:  # type: ignore[override]  # only lines, no slices
        return self._line(y)


class LineView(ScrollView, can_focus=True):
    """Lines that scroll; `has_cursor` adds a line cursor."""

    ALLOW_SELECT = False  # a selection would not be drawn

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "down", "down", show=False, tooltip="next line", id="down"),
        Binding("up,k", "up", "up", show=False, tooltip="previous line", id="up"),
        Binding("pagedown", "page(1)", "page down", show=False, id="page_down"),
        Binding("pageup", "page(-1)", "page up", show=False, id="page_up"),
        Binding("g,home", "first", "first", show=False, tooltip="first line", id="first"),
        Binding("G,end", "last", "last", show=False, tooltip="last line", id="last"),
    ]

    class Moved(Message):
        """The cursor moved."""

        def __init__(self, sender: LineView) -> None:
            super().__init__()
            self.sender = sender

    class Chosen(Moved):
        """`enter` was pressed on the cursor's line."""

    def __init__(self, *, has_cursor: bool = False, **keywords: str | None) -> None:
        super().__init__(
            name=keywords.get("name"), id=keywords.get("id"), classes=keywords.get("classes")
        )
        self.has_cursor = has_cursor
        self.cursor = 0
        self.cells_repainted = 0
        """Number of regions that `redraw` repainted; tests count them."""
        self._title = ""
        self._lines: Sequence[Line] = UNDRAWN
        self._width = 0
        """Cells of each of `_lines`; `room` takes 5 µs to compute, too long for every line."""
        self._shown: dict[int, Line] = {}
        self._tone_styles: dict[tuple[str, bool], Style] = {}
        """Style of a tone, without or with the cursor on the line."""

    def content(self, width: int) -> Sequence[Line]:
        """All lines, `width` cells wide; a lazy sequence where there are thousands."""
        raise NotImplementedError

    @property
    def room(self) -> int:
        """Width of a line in cells."""
        return self.scrollable_content_region.width

    def redraw(self) -> None:
        """Builds the lines again and repaints the visible cells that changed."""
        if not (width := self.room):
            return
        self._lines, self._width = self.content(width), width
        self._measure()
        top, height = self.scroll_offset.y, self.scrollable_content_region.height
        shown: dict[int, Line] = {}
        regions: list[Region] = []
        for y in range(top, top + height):
            line = shown[y] = self._line(y)
            old = self._shown.get(y, NO_LINE)
            if old is not line and old != line:
                regions.extend(Region(x, y - top, w, 1) for x, w in changed_columns(old, line))
        self._shown = shown
        self.cells_repainted += len(regions)
        if regions:
            self.refresh(*regions)

    def entitle(self, title: str) -> None:
        """Sets the border title; an equal one does not repaint the widget."""
        if title != self._title:
            self._title = title
            self.border_title = escape(f" {printable(title)} ")

    def entitle_before(self, start: tuple[str, str], rest: str) -> None:
        """Sets a title of three parts, always with `rest` in full.

        If room is short, the first part of `start` is left out, then the second one is cut.
        """
        # On both sides of the title there are a blank and a piece of the border.
        room = self.outer_size.width - 4 - cells(rest)
        first, second = start
        both = first + second
        if not self.outer_size.width or cells(both) <= room:
            self.entitle(both + rest)
        else:
            self.entitle((second if cells(second) <= room else fit(second, room)) + rest)

    def _measure(self) -> None:
        """Sets the number of lines if it has changed: that costs a layout."""
        count, before = len(self._lines), self.virtual_size.height
        self.cursor = max(0, min(self.cursor, count - 1))
        height = self.scrollable_content_region.height
        if count != before and (self.styles.is_auto_height or max(count, before) > height):
            self.virtual_size = Size(0, count)
            if self.styles.is_auto_height:
                # Textual 8.2 drops a layout that is requested during a layout.
                self.call_after_refresh(self.refresh, layout=True)

    def _line(self, y: int) -> Line:
        return self._lines[y] if 0 <= y < len(self._lines) else NO_LINE

    def render_line(self, y: int) -> Strip:
        if self._lines is UNDRAWN and (width := self.room):
            # Painted before it was told that it has room.
            self._lines, self._width = self.content(width), width
        y += self.scroll_offset.y
        line = self._shown.get(y) or self._line(y)
        chosen = self.has_cursor and y == self.cursor and self.has_focus and y < len(self._lines)
        return self._strip(line, self._width, chosen)

    def _strip(self, line: Line, width: int, chosen: bool) -> Strip:
        # Neighbours of one tone are joined: every segment costs time, and a colour sequence.
        segments = [
            Segment(printable("".join([text for text, _ in run])), self._style(tone, chosen))
            for tone, run in groupby(line, itemgetter(1))
        ]
        return Strip(segments).adjust_cell_length(width, self._style("", chosen))

    def _style(self, tone: str, chosen: bool) -> Style:
        if (style := self._tone_styles.get((tone, chosen))) is None:
            style = self.tone(tone)
            if chosen and tone not in FILLED:
                of_line = self.tone("line")
                style += Style(bgcolor=of_line.bgcolor, bold=True, reverse=of_line.reverse)
            self._tone_styles[tone, chosen] = style
        return style

    def tone(self, name: str) -> Style:
        """The style of a tone, from `tones.tcss`."""
        return (
            self.app.get_component_styles(f"tone--{name}").rich_style if name else self.rich_style
        )

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._tone_styles.clear()

    def on_mount(self) -> None:
        self.redraw()
        # A scrollbar narrows the lines; unchanged ones would stay cut off below it.
        self.watch(self, "show_vertical_scrollbar", self.redraw, init=False)

    def on_resize(self) -> None:
        self._shown = {}
        self.redraw()
        if self.has_cursor:
            self.move_to(self.cursor)
        self.refresh()

    def on_focus(self) -> None:
        self._repaint_cursor_line()

    def on_blur(self) -> None:
        self._repaint_cursor_line()

    def _repaint_cursor_line(self) -> None:
        if self.has_cursor:
            self.refresh_line(self.cursor)

    def on_click(self, event: events.Click) -> None:
        """Puts the cursor there; a double click does what `enter` does."""
        at = event.get_content_offset(self)
        if at is not None and self.click_at(at.x, at.y) and event.chain == 2:
            self.app.simulate_key("enter")

    def copied(self) -> str:
        """What `y` copies: the cursor's line, or all of a pane without one; "": the verdict."""
        lines = self._lines
        places = (self.cursor,) if self.has_cursor else range(len(lines))
        rows = ("".join(text for text, _ in lines[y]).rstrip() for y in places if y < len(lines))
        text = "\n".join(map(printable, rows)).strip("\n")
        return text.strip() if self.has_cursor else text

    def click_at(self, x: int, y: int) -> bool:  # noqa: ARG002 - rows that have columns need it
        """Puts the cursor on a visible cell; False if nothing is there to choose."""
        y += self.scroll_offset.y
        if not self.has_cursor or y >= len(self._lines):
            return False
        self.move_to(y)
        return True

    def move_to(self, y: int) -> None:
        """Puts the cursor on a line and scrolls to it."""
        if not self._lines:
            self.cursor = max(0, y)  # not drawn yet: there are no lines to count
            return
        y = max(0, min(y, len(self._lines) - 1))
        if y != self.cursor:
            self._repaint_cursor_line()
            self.cursor = y
            self._repaint_cursor_line()
            self.post_message(self.Moved(self))
        height = self.scrollable_content_region.height
        top = self.scroll_offset.y
        if y < top or y >= top + height:
            # By force: Textual does not scroll before it has drawn a scrollbar.
            self.scroll_to(y=y if y < top else y - height + 1, animate=False, force=True)

    def _step(self, lines: int) -> None:
        if self.has_cursor:
            self.move_to(self.cursor + lines)
        else:
            # By force, as in `move_to`: the key may be typed ahead of the first drawing.
            self.scroll_to(y=self.scroll_offset.y + lines, animate=False, force=True)

    def action_choose(self) -> None:
        self.post_message(self.Chosen(self))

    def action_down(self) -> None:
        self._step(1)

    def action_up(self) -> None:
        self._step(-1)

    def action_page(self, direction: int) -> None:
        self._step(direction * max(1, self.scrollable_content_region.height - 1))

    def action_first(self) -> None:
        self._step(-len(self._lines))

    def action_last(self) -> None:
        self._step(len(self._lines))
