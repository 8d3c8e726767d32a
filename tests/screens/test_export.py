"""`E`: a format, a path, and the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Input

from frtop_tui.files.formats.registry import FORMATS
from screens.driving import driven
from screens.scenes import hung


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


async def test_two_enters_write_a_report_beside_us() -> None:
    async with driven(hung()) as app:
        await app.press("E")
        await app.sees("export as html", *FORMATS)
        await app.sees(*(one.summary for one in FORMATS.values()))  # whole at 80 columns
        await app.press("enter", "enter")
        await app.wait_for(lambda: len(app.source.exported) == 1)
        ((path, name, over),) = app.source.exported
        assert (name, over) == ("html", False)
        assert path.name.startswith("frtop-llama-70b-")
        assert path.suffix == ".html"
        await app.sees("verdict: not entered")  # back where it was


async def test_another_format_has_another_path_until_one_is_typed() -> None:
    async with driven(hung()) as app:
        await app.press("E", "enter", "escape")
        await app.sees("export as html")
        await app.press("escape")
        await app.sees("verdict: not entered")
        await app.press("E", "j", "j")
        await app.sees("export as json")
        field = app.screen.query_one(Input)
        await app.wait_for(lambda: field.value.endswith(".json"))
        await app.press("enter")
        await app.sees("esc back", "enter write", "tab formats", "ctrl+u clear")
        await app.press("tab")
        await app.sees("enter path")
        await app.press("enter")
        field.value = "nowhere/x.json"
        await app.press("enter")
        await app.sees("There is no folder nowhere.")
        assert app.source.exported == []
        field.value = "mine.out"
        await app.press("enter")
        await app.wait_for(lambda: len(app.source.exported) == 1)
        assert app.source.exported == [(Path("mine.out"), "json", False)]
