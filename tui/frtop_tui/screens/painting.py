"""Sends only the changed cells to the terminal, sorted by style: fewer bytes over ssh.

Textual 8.2 repaints a widget's line from its start for each changed region, and writes
colours and a reset around every letter: 17 KB per tick for a large grid. Here each changed
cell is sent once and each style once.
"""

from __future__ import annotations

import re
from typing import Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from textual._compositor import ChopsUpdate, CompositorUpdate
from textual.app import App
from textual.screen import Screen

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
    """The same cells in fewer bytes; the update unchanged where parsing it fails."""
    if len(update) < MIN_LENGTH:
        return update
    runs = parse_runs(update)
    if runs is None or _overlap(runs):
        return update
    runs.sort()
    written: list[str] = []
    current, at_row, at_column = "", 0, 0
    for style, row, column, text in runs:
        if style != current:
            written.append(f"\x1b[0;{style}m" if style else "\x1b[0m")
            current = style
        if row != at_row or column < at_column:
            written.append(f"\x1b[{row};{column}H")
        elif column > at_column:
            written.append(f"\x1b[{column - at_column}C")
        written.append(text)
        at_row = row
        at_column = column + (len(text) if text.isascii() else cell_len(text))
    written.append("\x1b[0m")
    return "".join(written)


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
        written: list[str] = []
        update = self.update
        for y, left, right in update.spans:
            for end, (x, strip) in zip(update.chop_ends[y], update.chops[y].items(), strict=False):
                start, stop = max(x, left), min(end, right)
                # The strip is None where another widget covers it.
                if strip is not None and start < stop:
                    written.append(f"\x1b[{y + 1};{start + 1}H")
                    written.append(strip.crop(start - x, stop - x).render(console))
        return shortened("".join(written))


class CompactApp(App[None], inherit_bindings=False):
    """An application that sends only changed cells."""

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        if isinstance(renderable, ChopsUpdate):
            super()._display(screen, CompactUpdate(renderable))
        else:
            super()._display(screen, renderable)
