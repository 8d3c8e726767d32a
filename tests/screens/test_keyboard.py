"""Keys typed in one burst act as if typed slowly."""

from __future__ import annotations

import pytest
from textual import events
from textual.widgets import Input

from frtop_tui.screens.rank import RankScreen
from frtop_tui.screens.ranks import RanksScreen

from . import scenes
from .driving import Driven, driven

NAMED = {"/": "slash", "\b": "backspace", "\r": "enter", "!": "exclamation_mark", ":": "colon"}


def burst(app: Driven, text: str) -> None:
    """Sends all keys at once, like a slow terminal."""
    for character in text:
        key = NAMED.get(character, character)
        printable = character if character.isprintable() else None
        app.app.post_message(events.Key(key, printable))


async def test_a_filter_is_corrected_in_one_burst() -> None:
    async with driven(scenes.hung()) as app:
        burst(app, "/!late\r")
        await app.sees("filter !late")
        burst(app, "/" + "\b" * 5 + "host:node4")
        await app.sees("ranks 8 of 64, filter host:node4")


async def test_a_filter_is_typed_ahead_of_the_screen_it_opens_on_a_slow_host_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with driven(scenes.hung()) as app:
        burst(app, "/host:node4 late")
        await app.sees("ranks 1 of 64, filter host:node4 late")
        assert isinstance(app.screen, RanksScreen)
        await app.press("escape", "1")
        monkeypatch.setattr("frtop_tui.screens.keyboard.GONE_S", 0.0001)  # each key takes longer
        burst(app, "/host:node4 moving")
        await app.sees("ranks 0 of 64, filter host:node4 moving")


async def test_keys_typed_ahead_reach_the_screen_they_open() -> None:
    async with driven(scenes.hung()) as app:
        burst(app, "2I\rn")
        await app.wait_for(lambda: isinstance(app.screen, RankScreen))
        burst(app, "1/late\r\r")
        await app.sees("job > ranks > rank 37  dp:0 · ")


async def test_a_paste_after_the_slash_is_the_filter() -> None:
    async with driven(scenes.hung()) as app:
        burst(app, "/")
        app.app.post_message(events.Paste("host:node4 late\nrest"))
        await app.sees("ranks 1 of 64, filter host:node4 late")
        assert app.screen.query_one(Input).value == "host:node4 late"
