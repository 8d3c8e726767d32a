"""When garbage is collected."""

from __future__ import annotations

import gc
import time
import weakref

import pytest

from frtop_tui import garbage
from frtop_tui.garbage import IdleCollector


class Cycle:
    def __init__(self) -> None:
        self.itself = self


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
    collector, now_s = IdleCollector(), time.monotonic()
    gc.freeze()  # also what an earlier collection left
    left = weakref.ref(Cycle())
    gc.freeze()
    monkeypatch.setattr(time, "monotonic", lambda: now_s + passed_s)
    collector.tick(idle_s)
    assert (left() is None) == collects
