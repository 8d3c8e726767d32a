"""An agent's seat in its folder: lock and card, kept also when somebody clears the folder.

Shared memory is cleared at a user's last logout (logind's RemoveIPC), temporary folders by
age. What an agent has mapped stays readable, and who is connected stays so; but those who
look for it by the folder must find it again.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from frtop_probe.agent import announcement
from frtop_probe.agent.announcement import Announcement, Lock
from frtop_probe.agent.roster import Roster
from frtop_probe.agent.strays import Strays
from frtop_probe.ring.folder import FolderError, claim

LOOK_S: Final = 0.5


class Seat:
    """Held while the agent works; gives the lock back as it is by then."""

    def __init__(self, lock: Lock, card: Announcement, roster: Roster, strays: Strays) -> None:
        self._lock = lock
        self._card = card
        self._roster = roster
        self._strays = strays
        self._swept = time.monotonic()

    async def keep(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()
            if time.monotonic() - self._swept >= self._strays.every_s:
                self.sweep()

    def sweep(self) -> None:
        """Clears away what is left of others."""
        self._swept = time.monotonic()
        note = self._strays.sweep()
        if note:
            self._roster.note(note)

    def look(self) -> None:
        """Takes the seat anew if the folder, or the card in it, is gone."""
        files, in_place = self._lock.files, self._lock.in_place
        if in_place and files.card.exists():
            return
        if not in_place and not self._roster.busy:
            self._roster.closed = True  # cleared after the job: nobody wants it back
            return
        try:
            if not in_place and not self._taken_again():
                return
            announcement.write(files, self._card)
        except FolderError as problem:
            self._roster.note(str(problem))
        except OSError as error:
            self._roster.note(f"{error.filename or files.folder}: {error.strerror}")

    def _taken_again(self) -> bool:
        claim(self._lock.files.folder)
        taken = self._lock.retake()
        # With another agent there we serve the ranks that we have, and leave it the new ones.
        self._roster.closed = not taken
        if taken:
            self._roster.note(
                f"{self._lock.files.folder} was cleared by somebody: ranks that run since before "
                "cannot be seen by an agent that starts later; set FRTOP_DIR to another folder"
            )
        else:
            self._roster.note(
                f"{self._lock.files.folder} was cleared, and another agent is there now: it has "
                "the ranks that started since, this one those of before"
            )
        return taken
