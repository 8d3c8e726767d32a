"""Drives an app on scripted frames: presses keys and reads the screen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import textual.app
import textual.pilot
from rich.console import RenderableType
from textual._compositor import Compositor
from textual._context import active_app
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.pilot import Pilot

from connect.scripted_source import ScriptedSource
from frtop_probe.garbage import collect_rarely
from frtop_tui.app import FrtopApp
from frtop_tui.diagnosis.model import Frame
from frtop_tui.screens.base import FrameScreen
from waiting import DEADLINE_S, wait_for_async

collect_rarely()  # as `run_app` does
MOST_DRAWINGS = 8
"""In a row: what is drawn may change the layout, which is drawn again."""


class Driven:
    """A running app with its pilot; every wait has a condition and a deadline."""

    def __init__(self, app: FrtopApp, source: ScriptedSource, pilot: Pilot[None]) -> None:
        self.app, self.source, self.pilot = app, source, pilot

    @property
    def screen(self) -> FrameScreen:
        screen = self.app.screen
        assert isinstance(screen, FrameScreen)
        return screen

    def text(self) -> str:
        """Returns the text on the terminal."""
        strips = self.app.screen._compositor.render_strips()
        return "\n".join("".join(segment.text for segment in strip) for strip in strips)

    async def wait_for(self, condition: Callable[[], bool], what: str = "the condition") -> None:
        await wait_for_async(condition, lambda: f"{what}; the terminal shows:\n{self.text()}")

    async def sees(self, *words: str) -> None:
        shown = self.text()
        for word in words:
            if word not in shown:
                await self.wait_for(partial(self._is_visible, word), repr(word))

    def _is_visible(self, text: str) -> bool:
        return text in self.text()

    async def press(self, *keys: str) -> None:
        """Presses keys and waits until all are handled: one whose widget is gone takes 0.5 s."""
        await self.pilot.press(*keys)
        await self.drawn()
        if not self._are_handled():
            await self.wait_for(self._are_handled, "the keys")
            await self.drawn()

    def _are_handled(self) -> bool:
        return self.app._busy is None or self.app._exit

    async def resize(self, width: int, height: int) -> None:
        await self.pilot.resize_terminal(width, height)
        await self.wait_for(
            lambda: self.app.screen._compositor.size == (width, height), "the new size"
        )
        await self.drawn()

    async def drawn(self) -> None:
        """Waits until all messages are handled and drawn, and what follows from them."""
        await self.pilot.pause()
        await self.pilot.pause()
        for _ in range(MOST_DRAWINGS):
            if not self._is_to_be_drawn():
                break
            await self.pilot.pause()

    def _is_to_be_drawn(self) -> bool:
        screen = self.app.screen
        return bool(screen._layout_required or screen._repaint_required or screen._dirty_widgets)

    async def give(self, frame: Frame) -> None:
        """Hands a new frame to the source and waits until the app has drawn it."""
        self.source.give(frame)
        self.app.tick()
        await self.drawn()


async def all_handled(_seconds: float = 0) -> None:
    """Waits until the event loop has nothing to do but to wait for timers, files and threads.

    Textual's own `wait_for_idle` guesses so from the CPU time, and sleeps 20 ms or more for it.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + DEADLINE_S
    await asyncio.sleep(0)
    while loop._ready:  # type: ignore[attr-defined]
        assert loop.time() < end, "there is always something to do"
        await asyncio.sleep(0)


_parse = Stylesheet._parse_rules
_parsed: dict[object, list[RuleSet]] = {}
_theme: tuple[object, frozenset[tuple[str, str]]] = ({}, frozenset())
"""Variables that were last seen, and what they are: each app parses 80 styles with the same."""


def parse_once(self: Stylesheet, *args: Any, **named: Any) -> list[RuleSet]:
    """Parses the styles of each theme in one app only, not in hundreds."""
    global _theme  # noqa: PLW0603
    if _theme[0] is not self._variables:
        _theme = self._variables, frozenset(self._variables.items())
    key = _theme[1], args, frozenset(named.items())
    if key not in _parsed:
        _parsed[key] = _parse(self, *args, **named)
    return _parsed[key]


_render = Compositor.render_update


def render_if_shown(self: Compositor, *args: Any, **named: Any) -> RenderableType | None:
    """A headless app throws away what it has rendered; `text` renders it when somebody looks."""
    if active_app.get().is_headless and not named.get("full"):
        self._dirty_regions.clear()
        return None
    return _render(self, *args, **named)


@asynccontextmanager
async def driven(*frames: Frame, size: tuple[int, int] = (80, 24)) -> AsyncIterator[Driven]:
    source = ScriptedSource(frames)
    app = FrtopApp(source)
    with (
        patch.object(textual.app, "wait_for_idle", all_handled),
        patch.object(textual.pilot, "wait_for_idle", all_handled),
        patch.object(Stylesheet, "_parse_rules", parse_once),
        patch.object(Compositor, "render_update", render_if_shown),
    ):
        async with app.run_test(size=size, notifications=True) as pilot:
            driven = Driven(app, source, pilot)
            await driven.drawn()
            yield driven
