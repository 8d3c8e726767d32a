"""The screen goes first while it answers a key."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator

import pytest

from frtop_tui import foreground
from waiting import wait_for


@pytest.fixture(autouse=True)
def _over() -> Iterator[None]:
    yield
    foreground.end()


def paused() -> threading.Thread:
    thread = threading.Thread(target=foreground.give_way, daemon=True)
    thread.start()
    return thread


def test_others_pause_until_the_key_is_answered() -> None:
    foreground.begin()
    other = paused()
    assert other.is_alive()
    assert not gc.isenabled()
    foreground.end()
    other.join(5)
    assert not other.is_alive()
    assert gc.isenabled()


def test_a_key_that_takes_long_holds_nobody_up() -> None:
    foreground.begin()
    other = paused()
    other.join(5)
    assert not other.is_alive()
    foreground.end_if_late()
    assert gc.isenabled()


def test_long_work_begins_when_nobody_has_pressed_a_key_for_a_moment() -> None:
    foreground.begin()
    assert not foreground.is_calm()
    foreground.end()
    assert not foreground.is_calm()
    wait_for(foreground.is_calm, "it is calm", 5)


def test_who_is_not_in_the_way_does_not_pause() -> None:
    began_s = time.monotonic()
    for _ in range(10_000):
        foreground.give_way()
    assert time.monotonic() - began_s < 1
