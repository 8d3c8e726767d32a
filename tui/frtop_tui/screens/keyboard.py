"""Keys one after the other: what is typed ahead reaches what the key before it opened.

Textual hands every key to the widget that has the focus at that moment, and runs its
action some messages later. Of a burst (a paste, a slow line) the keys behind `/` would
go to the table instead of the filter. Here a key waits until the one before is done.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from textual import events
from textual.app import App
from textual.message import Message
from textual.timer import Timer

ROUNDS: Final = 4
"""Ways from the focus up to the application: a key, its wish, the screen's, its focus."""
LONGEST_S: Final = 0.5
"""A key is over by then, even when the widget that had it is gone."""
AT_ONCE: Final = ("ctrl+c",)


class KeyDone(Message):
    """Goes the way of a key, behind it: when it arrives, so has the key."""

    def __init__(self, serial: int, rounds: int) -> None:
        super().__init__()
        self.serial, self.rounds = serial, rounds


class OrderedKeys(App[None], inherit_bindings=False):
    """An application whose keys never overtake each other."""

    def __init__(self) -> None:
        super().__init__()
        self._typed: deque[events.InputEvent | events.Paste] = deque()
        self._serial = 0
        self._busy: Timer | None = None

    async def on_event(self, event: events.Event) -> None:
        fresh = isinstance(event, events.Key | events.Paste) and not event.is_forwarded
        if not fresh or (isinstance(event, events.Key) and event.key in AT_ONCE):
            await super().on_event(event)
        elif self._busy is not None:
            self._typed.append(event)  # type: ignore[arg-type]  # narrowed by `fresh`
        else:
            await self._type(event)

    async def _type(self, event: events.Event) -> None:
        self._serial += 1
        self._busy = self.set_timer(LONGEST_S, self._next_key)
        await super().on_event(event)
        self._follow(KeyDone(self._serial, ROUNDS))

    def _follow(self, done: KeyDone) -> None:
        (self.focused or self.screen).post_message(done)

    async def on_key_done(self, done: KeyDone) -> None:
        if done.serial != self._serial or self._busy is None:
            return
        if done.rounds > 1:
            self._follow(KeyDone(done.serial, done.rounds - 1))
        else:
            await self._next_key()

    async def _next_key(self) -> None:
        if self._busy is not None:
            self._busy.stop()
            self._busy = None
        if self._typed:
            await self._type(self._typed.popleft())
