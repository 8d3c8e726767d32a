"""Handles keys one at a time, so that keys typed ahead reach the screen that opens.

Textual gives a key to the widget that has the focus at that moment, and runs its action some
messages later. In a burst (a paste, a slow connection) the keys after `/` would go to the table
instead of the filter. Here a key waits until the one before it is handled.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Final

from textual import events
from textual.app import App
from textual.message import Message
from textual.timer import Timer
from textual.widget import Widget

from frtop_tui import foreground

ROUNDS: Final = 4
"""Trips from the focused widget to the app: key, action, message to the app, new focus."""
GONE_S: Final = 0.5
"""A key whose widget is gone counts as handled after this time."""
LONGEST_S: Final = 10.0
"""Any key does after this time; on a busy host the widget may only be late."""
IMMEDIATE: Final = ("ctrl+c",)


class KeyHandled(Message):
    """Takes the same path as a key: when it reaches the app, the key has been handled."""

    def __init__(self, serial: int, rounds: int) -> None:
        super().__init__()
        self.serial, self.rounds = serial, rounds


class OrderedKeys(App[None], inherit_bindings=False):
    """An application that handles each key before it takes the next."""

    def __init__(self) -> None:
        super().__init__()
        self._typed: deque[events.InputEvent | events.Paste] = deque()
        self._serial = 0
        self._busy: Timer | None = None
        self._asked: Widget | None = None
        self._since = time.monotonic()

    @property
    def idle_s(self) -> float:
        """The time since the last key."""
        return time.monotonic() - self._since

    async def on_event(self, event: events.Event) -> None:
        fresh = isinstance(event, events.Key | events.Paste) and not event.is_forwarded
        if not fresh or (isinstance(event, events.Key) and event.key in IMMEDIATE):
            await super().on_event(event)
        elif self._busy is not None:
            self._typed.append(event)  # type: ignore[arg-type]  # narrowed by `fresh`
        else:
            await self._handle(event)

    async def _handle(self, event: events.Event) -> None:
        self._serial += 1
        self._since = time.monotonic()
        self._busy = self.set_timer(GONE_S, self._late)
        foreground.begin()
        await super().on_event(event)
        self._send_after(KeyHandled(self._serial, ROUNDS))

    def _send_after(self, message: KeyHandled) -> None:
        self._asked = self.focused or self.screen
        self._asked.post_message(message)

    async def _late(self) -> None:
        asked = self._asked
        if asked is not None and asked.is_attached and time.monotonic() < self._since + LONGEST_S:
            self._busy = self.set_timer(GONE_S, self._late)
        else:
            await self._next_key()

    async def on_key_handled(self, message: KeyHandled) -> None:
        if message.serial != self._serial or self._busy is None:
            return
        if message.rounds > 1:
            self._send_after(KeyHandled(message.serial, message.rounds - 1))
        else:
            await self._next_key()

    async def _next_key(self) -> None:
        if self._busy is not None:
            self._busy.stop()
            self._busy = None
        if self._typed:
            await self._handle(self._typed.popleft())
        elif self.screen_stack:
            self.screen.call_after_refresh(foreground.end)
        else:  # the application ends
            foreground.end()
