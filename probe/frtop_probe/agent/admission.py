"""Who may come in, and do what, at this moment.

`authorized_keys` is read anew whenever somebody knocks or asks: whoever is admitted during
a hang is in at once. The home it lies in may be on the very file system that has died, so
it is read by a thread of its own, and what was known last holds when it does not answer.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from frtop_probe import keys
from frtop_probe.keys import AuthorizedKey, KeyPair, KeyProblem, Right

PATIENCE_S: Final = 1.0
"""What a healthy shared file system needs a hundredth of; later, what was known holds."""
MAX_GIVEN_UP: Final = 1024
"""Connections remembered, per key, that gave up acting; the oldest go first. An operator
can push out but its own, and has those only for its own good."""

Reading = tuple[AuthorizedKey, ...] | KeyProblem


class Admission:
    """Rights by key, and of single connections that gave some up. Needs a running loop."""

    def __init__(
        self,
        pair: KeyPair,
        *,
        read_only: bool = False,
        read: Callable[[KeyPair], tuple[AuthorizedKey, ...]] = keys.authorized,
    ) -> None:
        self.read_only = read_only
        self._pair = pair
        self._read = read
        self._others: dict[bytes, Right] = {}
        self._given_up: dict[bytes, dict[bytes, None]] = {}
        self._reading: asyncio.Future[Reading] | None = None
        self._overdue = False
        self._problem = ""
        self._untold = False
        self.notes: tuple[str, ...] = ()

    def is_owner(self, key: bytes) -> bool:
        """Whether it is our own: that of the jobs' owner."""
        return key == self._pair.public

    async def admits(self, key: bytes) -> bool:
        """Whether this key may come in, as of now."""
        if self.is_owner(key):
            self._begin()  # for its complaints: the owner comes in whatever they are
            return True
        return await self.right(key) is not None

    async def right(self, key: bytes) -> Right | None:
        """What this key may do by the lists, as of now; None: it may not come in."""
        if self.is_owner(key):
            return "act"
        patience = 0.0 if self._overdue else PATIENCE_S
        done, _ = await asyncio.wait({self._begin()}, timeout=patience)
        if not done and not self._overdue:
            self._overdue = True
            self._complain(f"{self._pair.path.with_name(keys.AUTHORIZED)} does not answer")
        return self._others.get(key)

    def give_up_acting(self, connection: bytes, key: bytes) -> None:
        """From now on this connection may only read. Nothing takes that back."""
        given_up = self._given_up.setdefault(key, {})
        given_up[connection] = None
        if len(given_up) > MAX_GIVEN_UP:
            del given_up[next(iter(given_up))]

    def gave_up_acting(self, connection: bytes, key: bytes) -> bool:
        """Ids of connections are chosen by clients: one counts only with its key."""
        return connection in self._given_up.get(key, ())

    def news(self) -> bool:
        """Whether `notes` have changed since this was asked last."""
        untold, self._untold = self._untold, False
        return untold

    def _begin(self) -> asyncio.Future[Reading]:
        """A reading of the lists: the one on its way, perhaps for ever, else a new one."""
        if self._reading is not None:
            return self._reading
        loop = asyncio.get_running_loop()
        self._reading = reading = loop.create_future()
        reading.add_done_callback(self._take)

        def work() -> None:
            found = self._read_now()
            with suppress(RuntimeError):  # the loop has closed meanwhile
                loop.call_soon_threadsafe(_settle, reading, found)

        # Not of a pool: the interpreter would wait at its end for one that hangs.
        reader = threading.Thread(target=work, name="frtop keys", daemon=True)
        try:
            reader.start()
        except RuntimeError as error:  # where processes are counted
            problem = f"the list of keys cannot be read: {error}"
            reading.set_result(KeyProblem(problem, "let this user start more threads"))
        return reading

    def _read_now(self) -> Reading:
        try:
            return self._read(self._pair)
        except KeyProblem as problem:
            return problem
        except Exception as error:  # noqa: BLE001 - nobody would hear of it in a thread
            return KeyProblem(f"the list of keys cannot be read: {error!r}", "please report this")

    def _take(self, reading: asyncio.Future[Reading]) -> None:
        self._reading, self._overdue = None, False
        found = reading.result()
        if isinstance(found, KeyProblem):
            self._complain(f"{found.text}; {found.next}")
            return
        self._others = {one.public: one.right for one in found}
        if self._problem:
            self._problem = ""
            at = time.strftime("%H:%M:%S")
            self._note(f"the list of keys is in order again, and holds since {at}")

    def _complain(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            self._note(f"{problem}. Until then those are admitted who were before")

    def _note(self, text: str) -> None:
        self.notes = (text,)
        self._untold = True
        with suppress(OSError, ValueError):
            sys.stderr.write(f"frtop agent: {text}\n")
            sys.stderr.flush()


def _settle(reading: asyncio.Future[Reading], found: Reading) -> None:
    if not reading.done():
        reading.set_result(found)
