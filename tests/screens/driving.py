"""Drives an app on scripted frames: presses keys and reads the screen."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from textual.pilot import Pilot

from frtop_tui.app import FrtopApp
from frtop_tui.diagnosis.model import Frame
from frtop_tui.screens.base import FrameScreen
from frtop_tui.sources.base import ScriptedSource

LIMIT_S = 5.0


class Driven:
    """A running app with its pilot. Every wait is for a condition, with a deadline."""

    def __init__(self, app: FrtopApp, source: ScriptedSource, pilot: Pilot[None]) -> None:
        self.app, self.source, self.pilot = app, source, pilot

    @property
    def screen(self) -> FrameScreen:
        screen = self.app.screen
        assert isinstance(screen, FrameScreen)
        return screen

    def text(self) -> str:
        """The text on the terminal."""
        strips = self.app.screen._compositor.render_strips()
        return "\n".join("".join(segment.text for segment in strip) for strip in strips)

    async def until(self, holds: Callable[[], bool], what: str = "") -> None:
        waited = 0.0
        while not holds():
            assert waited < LIMIT_S, f"{what or 'the condition'} did not come true:\n{self.text()}"
            await self.pilot.pause(0.02)
            waited += 0.02

    async def sees(self, *words: str) -> None:
        for word in words:
            await self.until(lambda word=word: word in self.text(), repr(word))  # type: ignore[misc]

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def give(self, frame: Frame) -> None:
        """Gives the source a new frame and waits until it is drawn."""
        self.source.give(frame)
        self.app.tick()
        await self.pilot.pause()


@asynccontextmanager
async def driven(*frames: Frame, size: tuple[int, int] = (80, 24)) -> AsyncIterator[Driven]:
    source = ScriptedSource(frames)
    app = FrtopApp(source)
    async with app.run_test(size=size, notifications=True) as pilot:
        await pilot.pause()
        yield Driven(app, source, pilot)
