"""Sends only the changed cells to the terminal, sorted by style: fewer bytes over ssh.

Textual 8.2 repaints a widget's line from its start for each changed region, and writes
colours and a reset around every letter: 17 KB per tick for a large grid. Here each changed
cell is sent once and each style once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from textual._compositor import ChopsUpdate, CompositorUpdate
from textual.app import App
from textual.screen import Screen
from textual.strip import Strip

TOKEN: Final = re.compile(r"\x1b\[(\d+);(\d+)H|\x1b\[([\d;]*)m|(\n)|([^\x00-\x1f\x7f]+)")
MIN_LENGTH: Final = 256
"""Characters; shorter updates are sent as they are."""

Run = tuple[str, int, int, str]
"""Style, row, column and text of adjacent cells."""


def parse_runs(update: str) -> list[Run] | None:
    """What an update writes where; None if it contains any other control sequence."""
    runs: list[Run] = []
    row = column = read = 0
    style = ""
    for token in TOKEN.finditer(update):
        if token.start() != read:
            return None
        read = token.end()
        kind = token.lastindex
        if kind == 2:
            row, column = int(token[1]), int(token[2])
        elif kind == 3:
            style = "" if token[3] in ("", "0") else token[3]
        elif kind == 4:
            row = 0
        else:
            if not row:
                return None
            text = token[5]
            runs.append((style, row, column, text))
            column += len(text) if text.isascii() else cell_len(text)
    return runs if read == len(update) and not style else None


def shortened(update: str) -> str:
    """The same cells in fewer bytes; the unchanged update if parsing fails."""
    if len(update) < MIN_LENGTH:
        return update
    runs = parse_runs(update)
    if runs is None or _overlap(runs):
        return update
    return written(runs)


def written(runs: list[Run]) -> str:
    """Runs that do not overlap, sorted so that each style is set once."""
    runs.sort()
    parts: list[str] = []
    current, at_row, at_column = "", 0, 0
    for style, row, column, text in runs:
        if style != current:
            parts.append(f"\x1b[0;{style}m" if style else "\x1b[0m")
            current = style
        if row != at_row or column < at_column:
            parts.append(f"\x1b[{row};{column}H")
        elif column > at_column:
            parts.append(f"\x1b[{column - at_column}C")
        parts.append(text)
        at_row = row
        at_column = column + (len(text) if text.isascii() else cell_len(text))
    parts.append("\x1b[0m")
    return "".join(parts)


@lru_cache(1024)
def _is_narrow(text: str) -> bool:
    """Whether each character takes one cell, so that cells are counted as characters."""
    return all(cell_len(letter) == 1 for letter in text)


def cut_runs(strip: Strip, x: int, spans: Sequence[tuple[int, int]], row: int,
             colors: ColorSystem) -> list[Run] | None:  # fmt: skip
    """The runs of a strip that begins in column `x` (from 0), within sorted spans of columns.

    Cutting strips would make two or three objects with seven caches each for every span. None for
    what cannot be cut by cells: wide characters, links, control codes.
    """
    found: list[Run] = []
    nth, (left, right) = 0, spans[0]
    for text, style, control in strip:
        if (
            control
            or not (text.isascii() or _is_narrow(text))
            or (style is not None and style.link)
        ):
            return None
        end = x + len(text)
        while left < end:
            if (start := max(x, left)) < (stop := min(end, right)):
                ansi = "" if style is None else style._ansi  # noqa: SLF001 - Textual's own cache
                if ansi is None:
                    assert style is not None
                    ansi = Strip.render_ansi(style, colors)
                found.append((ansi, row + 1, start + 1, text[start - x : stop - x]))
            if right > end:  # the rest of the span is in the next segments
                break
            if (nth := nth + 1) == len(spans):
                return found
            left, right = spans[nth]
        x = end
    return found


def _overlap(runs: list[Run]) -> bool:
    """Whether a cell is written twice, so that the order matters."""
    end_row = end = 0
    for row, column, text in sorted([run[1:] for run in runs]):
        if row == end_row and column < end:
            return True
        end_row, end = row, column + cell_len(text)
    return False


class CompactUpdate(CompositorUpdate):
    """Textual's update of single regions in fewer bytes."""

    def __init__(self, update: ChopsUpdate) -> None:
        self.update = update

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        return self.update.__rich_console__(console, options)

    def render_segments(self, console: Console) -> str:
        runs = self._runs(console)
        return shortened(self._cropped(console)) if runs is None else written(runs)

    def _runs(self, console: Console) -> list[Run] | None:
        """What changes on the terminal; None if strips must be cropped for that."""
        update, found = self.update, list[Run]()
        colors = console._color_system or ColorSystem.TRUECOLOR  # noqa: SLF001 - as Strip does
        lines: dict[int, list[tuple[int, int]]] = {}
        for y, left, right in update.spans:
            lines.setdefault(y, []).append((left, right))
        for y, spans in lines.items():
            first, last = spans[0][0], spans[-1][1]
            for end, (x, strip) in zip(update.chop_ends[y], update.chops[y].items(), strict=False):
                # The strip is None where another widget covers it.
                if strip is None or x >= last or end <= first:
                    continue
                here = [(max(x, left), min(end, right)) for left, right in spans
                        if left < end and right > x]  # fmt: skip
                runs = cut_runs(strip, x, here, y, colors) if here else []
                if runs is None:
                    return None
                found += runs
        return found

    def _cropped(self, console: Console) -> str:
        parts: list[str] = []
        update = self.update
        for y, left, right in update.spans:
            for end, (x, strip) in zip(update.chop_ends[y], update.chops[y].items(), strict=False):
                start, stop = max(x, left), min(end, right)
                if strip is not None and start < stop:
                    parts.append(f"\x1b[{y + 1};{start + 1}H")
                    parts.append(strip.crop(start - x, stop - x).render(console))
        return "".join(parts)


class CompactApp(App[None], inherit_bindings=False):
    """An application that sends only changed cells."""

    def action_redraw(self) -> None:
        """Sends all cells: something else may have written on the terminal."""
        self.screen.refresh()

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        if isinstance(renderable, ChopsUpdate):
            super()._display(screen, CompactUpdate(renderable))
        else:
            super()._display(screen, renderable)
