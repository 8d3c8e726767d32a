"""Lets the screen go first while it answers a key: other threads pause, no garbage is collected.

Python runs one thread at a time. A thread that decodes updates or judges a job of thousands of
ranks takes turns with the one that draws, and a key takes twice as long.
"""

from __future__ import annotations

import gc
import threading
import time
from typing import Final

MOST_S: Final = 0.2
"""A key that takes longer holds nobody up any more."""

CALM_S: Final = 0.3
"""The time without a key after which long work may begin."""

_free = threading.Event()
_free.set()
_until_s = 0.0
_ended_s = 0.0


def begin() -> None:
    """The screen works on a key from now on."""
    global _until_s  # noqa: PLW0603 - one screen per process
    _until_s = time.monotonic() + MOST_S
    _free.clear()
    gc.disable()


def end() -> None:
    """It is done."""
    global _ended_s  # noqa: PLW0603
    _ended_s = time.monotonic()
    _free.set()
    gc.enable()


def end_if_late() -> None:
    """Others go on in any case: a screen may have closed before it was drawn."""
    if not _free.is_set() and time.monotonic() > _until_s:
        end()


def is_calm() -> bool:
    """Whether no key is being answered, nor was one just now."""
    now_s = time.monotonic()
    return (_free.is_set() or now_s > _until_s) and now_s - _ended_s > CALM_S


def give_way() -> None:
    """Pauses this thread while a key is being answered."""
    if not _free.is_set():
        _free.wait(max(0.0, _until_s - time.monotonic()))
