"""The panes of a timeline: a ruler, a lane per line with a cursor in time, text below."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from textual.binding import Binding, BindingType

from frtop_tui.features.timeline.window import TimeWindow
from frtop_tui.job.units import exact_clock
from frtop_tui.widgets.lines import LazyLines, LineView
from frtop_tui.widgets.spans import Line, clip, fit, plain, reflow

_TICK: Final = 20
"""Columns between two labels on the ruler."""


class LanePane(LineView):
    """Lanes with a cursor: the line is a lane, `column` a time."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "open", tooltip="show the lane's rank", id="lane.open"),
        Binding(
            "left,h", "sideways(-1)", "earlier", show=False, tooltip="one column earlier", id="left"
        ),
        Binding(
            "right,l", "sideways(1)", "later", show=False, tooltip="one column later", id="right"
        ),
        Binding(
            "H", "half(-1)", "half left", show=False, tooltip="half a screen earlier", id="lane.H"
        ),
        Binding(
            "L", "half(1)", "half right", show=False, tooltip="half a screen later", id="lane.L"
        ),
    ]

    class Sideways(LineView.Moved):
        """Asks to move the cursor by `columns`; with `screen`, the window as well."""

        def __init__(self, sender: LineView, columns: int, *, screen: bool = False) -> None:
            super().__init__(sender)
            self.columns = columns
            self.screen = screen

    def __init__(self, draw_lane: Callable[[int], Line]) -> None:
        super().__init__(has_cursor=True, id="lanes")
        self.draw_lane = draw_lane
        self.count = 0
        self.empty = "no ranks yet"

    def content(self, width: int) -> Sequence[Line]:  # noqa: ARG002
        if not self.count:
            return (plain(self.empty, "dim"),)
        return LazyLines(lambda: self.count, self.draw_lane)

    @property
    def in_view(self) -> range:
        top = self.scroll_offset.y
        height = self.scrollable_content_region.height
        return range(min(top, self.count), min(top + max(1, height), self.count))

    def action_sideways(self, columns: int) -> None:
        self.post_message(self.Sideways(self, columns))

    def action_half(self, direction: int) -> None:
        self.post_message(self.Sideways(self, direction, screen=True))


class Ruler(LineView, can_focus=False):
    """Two lines above the lanes: times, then ends of steps and when it went wrong."""

    def __init__(self) -> None:
        super().__init__(id="ruler", classes="pane")
        self.window: TimeWindow | None = None
        self.wall_ns = 0
        self.label_width = 0
        self.cursor_column = 0
        self.steps: Sequence[tuple[int, int]] = ()
        self.trouble = ""
        """The job's health, if something is wrong; it began at `trouble_ns`."""
        self.trouble_ns = 0

    def content(self, width: int) -> Sequence[Line]:
        window = self.window
        if window is None:
            return ()
        lead = " " * self.label_width
        times, column = "", 0
        while column < window.columns:
            text = "|" + exact_clock(window.time(column) + self.wall_ns)
            times += fit(text if column + len(text) <= window.columns else "|", _TICK)
            column += _TICK
        times = times[: window.columns]
        row = [" "] * window.columns
        for column, number in self.steps:
            if not 0 <= column < window.columns:
                continue
            name = f"{number}│"
            begin = max(0, column - len(name) + 1)
            for offset, letter in enumerate(name[-(column - begin + 1) :]):
                if row[begin + offset] == " " or letter == "│":
                    row[begin + offset] = letter
        tones = ["dim"] * window.columns
        words = f"┃{self.trouble.upper()}" if self.trouble else ""
        for offset, letter in enumerate(words, window.column(self.trouble_ns)):
            if 0 <= offset < window.columns:
                row[offset], tones[offset] = letter, "late"
        at = max(0, min(self.cursor_column, window.columns - 1))
        row[at], tones[at] = "▼", "key"
        below = tuple(zip(row, tones, strict=True))
        return (clip(((lead + times, "dim"),), width), clip(((lead, ""), *below), width))


class WordsPane(LineView, can_focus=False):
    """The op under the cursor, and the legend."""

    def __init__(self) -> None:
        super().__init__(id="words", classes="pane")
        self.lines: Sequence[Line] = ()

    def content(self, width: int) -> Sequence[Line]:
        return [row for line in self.lines for row in reflow(line, width)]
