"""Rights by key: the owner may always act, others as `authorized_keys` says.

`rights.py` uses them to decide who may look and who may act.

The list is read again at every connection and request, so an operator admitted during a hang gets
in at once. Its file may be on the file system that hangs: a daemon thread reads it, and the last
known rights apply until it answers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from frtop_probe import keys
from frtop_probe.agent.interfaces import log
from frtop_probe.agent.rights import Right, Rights
from frtop_probe.keys import AuthorizedKey, KeyPair, KeyProblem
from frtop_probe.proc import daemon_thread

TIMEOUT_S: Final = 1.0
"""A healthy shared file system needs 1 % of this; after it, the last known rights apply."""

Entries = tuple[AuthorizedKey, ...] | KeyProblem


class KeyRights(Rights):
    """Rights of public keys, in z85. Needs a running event loop."""

    def __init__(
        self,
        pair: KeyPair,
        *,
        read_only: bool = False,
        read: Callable[[KeyPair], tuple[AuthorizedKey, ...]] = keys.authorized,
    ) -> None:
        """`pair` is the owner's; `read` returns all others that are admitted."""
        super().__init__(read_only=read_only)
        self._file = pair.path.with_name(keys.AUTHORIZED)
        self._pair = pair
        self._read = read
        self._others: dict[bytes, AuthorizedKey] = {}
        self._reading: asyncio.Future[Entries] | None = None
        self._overdue = False
        self._problem = ""
        self._notes_changed = False

    def is_owner(self, key: bytes) -> bool:
        return key == self._pair.public

    async def admits(self, key: bytes) -> bool:
        """Whether this key may connect now."""
        if self.is_owner(key):
            self._start_reading()  # only to report problems: the owner is always admitted
            return True
        return await self.right(key) is not None

    async def right(self, key: bytes) -> Right | None:
        if self.is_owner(key):
            return "act"
        timeout = 0.0 if self._overdue else TIMEOUT_S
        done, _ = await asyncio.wait({self._start_reading()}, timeout=timeout)
        if not done and not self._overdue:
            self._overdue = True
            self._report(f"{self._file} does not answer")
        entry = self._others.get(key)
        return None if entry is None else entry.right

    def key_text(self, key: bytes) -> str:
        return keys.format_public(key)

    def name(self, key: bytes) -> str:
        entry = self._others.get(key)
        name = "the owner" if self.is_owner(key) else entry.name if entry is not None else ""
        return f"{self.key_text(key)} ({name})" if name else self.key_text(key)

    def take_notes_changed(self) -> bool:
        changed, self._notes_changed = self._notes_changed, False
        return changed

    def _start_reading(self) -> asyncio.Future[Entries]:
        """The reading of the lists in progress, which may hang, or a new one."""
        if self._reading is not None:
            return self._reading
        try:
            self._reading = reading = daemon_thread.run(self._read_now, "frtop keys")
        except RuntimeError as error:  # the process limit
            self._reading = reading = asyncio.get_running_loop().create_future()
            problem = f"the list of keys cannot be read: {error}"
            reading.set_result(KeyProblem(problem, "let this user start more threads"))
        reading.add_done_callback(self._finish_reading)
        return reading

    def _read_now(self) -> Entries:
        try:
            return self._read(self._pair)
        except KeyProblem as problem:
            return problem
        except Exception as error:  # noqa: BLE001 - errors in a thread would go unnoticed
            return KeyProblem(f"the list of keys cannot be read: {error!r}", "please report this")

    def _finish_reading(self, reading: asyncio.Future[Entries]) -> None:
        self._reading, self._overdue = None, False
        found = reading.result()
        if isinstance(found, KeyProblem):
            self._report(f"{found.text}; {found.next}")
            return
        self._others = {entry.public: entry for entry in found}
        if self._problem:
            self._problem = ""
            at = time.strftime("%H:%M:%S")
            self._note(f"the list of keys is valid again since {at}")

    def _report(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            self._note(f"{problem}. Until then, the keys admitted before stay admitted")

    def _note(self, text: str) -> None:
        self.notes = (text,)
        self._notes_changed = True
        log(text)
