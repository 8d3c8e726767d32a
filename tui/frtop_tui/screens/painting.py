"""Fewer bytes for the same picture: changed cells sorted by their look, then by place.

Textual 8.2 paints a widget's line from its start for each of its changed places, and
writes colours and a reset around every letter: of a large grid 17 KB a tick, over ssh.
All that is needed is the changed cells, and the look of all cells of one look once.
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
WORTH: Final = 256
"""Characters from which an update is looked through."""

Run = tuple[str, int, int, str]
"""Look, row, column and text of cells side by side."""


def runs_of(update: str) -> list[Run] | None:
    """What an update writes where; None if it holds anything that is not understood."""
    runs: list[Run] = []
    row = column = read = 0
    look = ""
    for token in TOKEN.finditer(update):
        if token.start() != read:
            return None
        read = token.end()
        kind = token.lastindex
        if kind == 2:
            row, column = int(token[1]), int(token[2])
        elif kind == 3:
            look = "" if token[3] in ("", "0") else token[3]
        elif kind == 4:
            row = 0
        else:
            if not row:
                return None
            text = token[5]
            runs.append((look, row, column, text))
            column += len(text) if text.isascii() else cell_len(text)
    return runs if read == len(update) and not look else None


def frugal(update: str) -> str:
    """The same cells in as few bytes as is easy; the update itself where one is in doubt."""
    if len(update) < WORTH:
        return update
    runs = runs_of(update)
    if runs is None or _overlap(runs):
        return update
    runs.sort()
    written: list[str] = []
    pen, at_row, at_column = "", 0, 0
    for look, row, column, text in runs:
        if look != pen:
            written.append(f"\x1b[0;{look}m" if look else "\x1b[0m")
            pen = look
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
    """Whether a cell is written twice: then the order matters."""
    end_row = end = 0
    for row, column, text in sorted([run[1:] for run in runs]):
        if row == end_row and column < end:
            return True
        end_row, end = row, column + cell_len(text)
    return False


class FrugalUpdate(CompositorUpdate):
    """Textual's update of single places, said in fewer bytes."""

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
                # The strip is None where another widget lies over it.
                if strip is not None and start < stop:
                    written.append(f"\x1b[{y + 1};{start + 1}H")
                    written.append(strip.crop(start - x, stop - x).render(console))
        return frugal("".join(written))


class FrugalApp(App[None], inherit_bindings=False):
    """An application that sends what changed and little else."""

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        if isinstance(renderable, ChopsUpdate):
            super()._display(screen, FrugalUpdate(renderable))
        else:
            super()._display(screen, renderable)
