"""Waiting for a condition with a deadline: the one implementation for all tests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

DEADLINE_S = 60.0
"""Of anything that happens at all, on a host where every step takes twenty times as long."""
Found = TypeVar("Found")
Description = str | Callable[[], str]
"""What is waited for; a function is called only on failure, for instance to read logs."""


def wait_for(
    condition: Callable[[], Found | None],
    what: Description,
    seconds: float = DEADLINE_S,
    pause_s: float = 0.02,
) -> Found:
    """Returns the first true value of `condition`; fails with `what` after `seconds`."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > end:
            raise AssertionError(_failure(what, seconds))
        time.sleep(pause_s)
    return found


async def wait_for_async(
    condition: Callable[[], Found | None],
    what: Description,
    seconds: float = DEADLINE_S,
    pause_s: float = 0.01,
) -> Found:
    """As `wait_for`, while the event loop goes on."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > end:
            raise AssertionError(_failure(what, seconds))
        await asyncio.sleep(pause_s)
    return found


def _failure(what: Description, seconds: float) -> str:
    return f"not within {seconds:g} s: {what if isinstance(what, str) else what()}"
