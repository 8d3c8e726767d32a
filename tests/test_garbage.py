"""When garbage is collected."""

from __future__ import annotations

import gc
import time
import weakref

import pytest
from textual._styles_cache import StylesCache
from textual.app import App
from textual.screen import Screen

from frtop_probe import garbage
from frtop_probe.garbage import Collector


class Cycle:
    def __init__(self) -> None:
        self.itself = self


async def test_what_a_closed_screen_has_shown_does_not_stay() -> None:
    async with App[None]().run_test() as pilot:
        await pilot.app.push_screen(Screen())
        await pilot.pause()
        shown = weakref.ref(pilot.app.screen._styles_cache)
        await pilot.app.pop_screen()
        collector = Collector(StylesCache.get_inner_outer.cache_clear)
        end_s = time.monotonic() + 10
        while shown() is not None and time.monotonic() < end_s:  # timers of the screen may be due
            await pilot.pause(0.05)
            collector._last_s -= garbage.APART_S
            collector.tick(garbage.IDLE_S)
        assert shown() is None


@pytest.mark.parametrize(
    ("passed_s", "idle_s", "collects"),
    [
        (garbage.APART_S + 1, garbage.IDLE_S + 1, True),
        (garbage.APART_S + 1, garbage.IDLE_S - 1, False),
        (garbage.APART_S - 1, garbage.IDLE_S + 1, False),
    ],
)
def test_garbage_is_collected_once_a_minute_while_nobody_waits(
    passed_s: float, idle_s: float, collects: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector, now_s = Collector(), time.monotonic()
    gc.freeze()  # also what an earlier collection left
    left = weakref.ref(Cycle())
    gc.freeze()
    monkeypatch.setattr(time, "monotonic", lambda: now_s + passed_s)
    collector.tick(idle_s)
    assert (left() is None) == collects
