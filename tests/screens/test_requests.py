"""Ticks and keys send requests to the source; drawing a frame sends none."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from connect.scripted_source import ScriptedSource
from frtop_tui.app import FrtopApp
from frtop_tui.screens.stacks import StacksScreen

from . import scenes
from .driving import driven


def sent(source: ScriptedSource) -> list[object]:
    """Everything the source was asked for, except which ranks are watched."""
    asked = (
        source.dumped,
        source.inspected,
        source.orders["tensors"],
        source.captured,
        source.chosen,
        source.taken_native,
    )
    return [request for requests in asked for request in requests]


async def test_drawing_a_frame_twice_sends_nothing() -> None:
    async with driven(scenes.hung()) as app:
        for keys in ("1", "enter", "2", "3", "4", "J", "t", "question_mark"):
            await app.press("1", keys)
            before, watched = sent(app.source), list(app.source.watched)
            for seconds in (1, 2):
                app.screen.show(replace(scenes.hung(), now_ns=scenes.NOW + seconds * scenes.S))
                app.screen.draw_all()
                await app.drawn()
            assert sent(app.source) == before, keys
            assert app.source.watched == watched, keys


async def test_an_opening_screen_sends_nothing_while_it_draws(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FrtopApp, "_send_requests", lambda *_: None)
    monkeypatch.setattr(StacksScreen, "request", lambda *_: None)
    async with driven(scenes.hung()) as app:
        for key in ("enter", "4"):
            await app.press("1", key)
            await app.give(replace(scenes.hung(), now_ns=scenes.NOW + scenes.S))
            await app.sees("64/64 reporting")
            assert (sent(app.source), app.source.watched) == ([], [])


async def test_a_screen_asks_once_however_many_frames_come() -> None:
    async with driven(scenes.hung()) as app:
        await app.press("4")
        for seconds in (1, 2, 3):
            await app.give(replace(scenes.hung(), now_ns=scenes.NOW + seconds * scenes.S))
        assert app.source.dumped == [tuple(range(64))]
