"""Updates are shorter, and the terminal shows the same cells."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual.screen import Screen
from textual.strip import Strip

from frtop_tui.app import FrtopApp
from frtop_tui.screens.painting import MIN_LENGTH, cut_runs, shortened

from . import rare_scenes
from .driving import driven

Cells = dict[tuple[int, int], tuple[str, str]]


def picture(update: str) -> Cells:
    """The cells a terminal shows after it: (row, column) to style and letter."""
    cells: Cells = {}
    row = column = 1
    style = ""
    for code, letter, text in re.findall(r"\x1b\[([\d;]*)([A-Za-z])|([^\x1b])", update):
        if letter == "H":
            row, column = map(int, code.split(";"))
        elif letter == "C":
            column += int(code)
        elif letter == "m":
            style = code.removeprefix("0;") if code != "0" else ""
        elif text == "\n":
            row, column = row + 1, 1
        else:
            cells[row, column] = (style, text)
            column += 1
    return cells


def update_of(seed: int) -> str:
    """An update as Textual writes it: scattered letters and labels, one line per row."""
    chance = random.Random(seed)
    rows = []
    for row in range(1, 30):
        parts = []
        for column in sorted(chance.sample(range(1, 150, 5), 12)):
            style = chance.choice(["1;38;2;1;2;3;48;2;9;9;9", "38;2;4;5;6;48;2;9;9;9"])
            text = chance.choice(["b", ".", "node"])
            parts.append(f"\x1b[{row};{column}H\x1b[{style}m{text}\x1b[0m")
        rows.append("".join(parts))
    return "\n".join(rows)


@pytest.mark.parametrize("seed", range(3))
def test_the_same_cells_need_a_quarter_of_the_bytes(seed: int) -> None:
    update = update_of(seed)
    assert picture(shortened(update)) == picture(update)
    assert len(shortened(update)) < len(update) / 4


@pytest.mark.parametrize(
    "odd",
    [
        "\x1b]8;;http://x\x1b\\",  # a link
        "\x1b[3;3H\x1b[1mab\x1b[0m\x1b[3;4H\x1b[2mc\x1b[0m",  # a cell written twice
        "\nadrift",
        "\x1b[2K",
    ],
)
def test_updates_with_other_control_sequences_are_unchanged(odd: str) -> None:
    update = (
        "\x1b[1;1H\x1b[1mx\x1b[0m"
        + odd
        + "".join(f"\x1b[9;{n}H\x1b[1mx\x1b[0m" for n in range(1, MIN_LENGTH))
    )
    assert shortened(update) == update


async def test_the_sent_cells_are_those_on_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    async with driven(rare_scenes.many(512), size=(100, 40)) as app:
        await app.sees("512/512 reporting")
        sent: list[str] = []
        assert app.app._driver is not None
        monkeypatch.setattr(type(app.app), "is_headless", property(lambda _: False))
        monkeypatch.setattr(app.app._driver, "write", sent.append)
        shown: dict[tuple[int, int], str] = {}
        for tick in range(1, 6):
            sent.clear()
            await app.give(rare_scenes.many(512, tick))
            await app.press("l")
            painted = picture(re.sub(r"\x1b\[\?[0-9;]*[a-z]", "", "".join(sent)))
            shown |= {place: letter for place, (_, letter) in painted.items()}
            rows = app.text().splitlines()
            assert shown == {(y, x): rows[y - 1][x - 1] for y, x in shown}
        assert len(shown) > 50
        sent.clear()
        await app.press("ctrl+l")  # something else wrote on the terminal
        painted = picture(re.sub(r"\x1b\[\?[0-9;]*[a-z]", "", "".join(sent)))
        assert {row for row, _ in painted} == set(range(1, 41))
        monkeypatch.undo()


@given(
    st.lists(st.tuples(st.text("ab.", min_size=1, max_size=5), st.booleans()), max_size=12),
    st.lists(st.integers(0, 40), min_size=2, max_size=12, unique=True).map(sorted),
)
def test_all_cells_within_spans_are_sent_and_no_others(
    segments: list[tuple[str, bool]], edges: list[int]
) -> None:
    spans = list(zip(edges[::2], edges[1::2], strict=False))
    strip = Strip([Segment(text, Style(bold=bold)) for text, bold in segments])
    runs = cut_runs(strip, 3, spans, 7, ColorSystem.TRUECOLOR)
    assert runs is not None
    sent = [
        (column + n, letter, style == "1")
        for style, row, column, text in runs
        for n, letter in enumerate(text)
        if row == 8
    ]
    cells = [(letter, bold) for text, bold in segments for letter in text]
    assert sent == [
        (x + 1, *cell)
        for x, cell in enumerate(cells, 3)
        if any(left <= x < right for left, right in spans)
    ]


def test_wide_characters_take_two_cells() -> None:
    update = "".join(f"\x1b[{n};1H\x1b[1m日本\x1b[0m\x1b[2mx\x1b[0m" for n in range(1, 30))
    assert "\x1b[29;5H" in shortened(update)
    assert "日本" in shortened(update)


@pytest.mark.parametrize("key", ["2", "3", "w"])
async def test_the_first_picture_of_a_screen_is_not_empty(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with driven(rare_scenes.many(64), size=(100, 40)) as app:
        await app.sees("64/64 reporting")
        overview = app.screen
        first: list[str] = []
        display = FrtopApp._display

        def shows(self: FrtopApp, screen: Screen[Any], renderable: Any) -> None:
            display(self, screen, renderable)
            if screen is self.screen is not overview and not first:
                first.append(app.text())

        monkeypatch.setattr(FrtopApp, "_display", shows)
        await app.press(key)
        # A scrollbar may come later, and take a column.
        begins = [[row[:12] for row in text.splitlines()[:20]] for text in (first[0], app.text())]
        assert begins[0] == begins[1]
