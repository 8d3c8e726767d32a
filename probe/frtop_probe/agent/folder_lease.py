"""Keeps an agent's lock and card in its folder, also when somebody clears the folder.

Shared memory is cleared at a user's last logout (logind's RemoveIPC), temporary folders by
age. The agent has its rings open and its connections, and keeps them; lock and card are made
again, so that new screens find it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from frtop_probe.agent import announcement
from frtop_probe.agent.agent_lock import AgentLock
from frtop_probe.agent.announcement import Announcement
from frtop_probe.agent.rank_tracker import RankTracker
from frtop_probe.agent.stale_files import StaleFiles
from frtop_probe.ring.folder import FolderError, claim, existing

CHECK_S: Final = 0.5


class FolderLease:
    """Holds an agent's place in its folder while the agent works."""

    def __init__(
        self, lock: AgentLock, card: Announcement, tracker: RankTracker, stale_files: StaleFiles
    ) -> None:
        self._lock = lock
        self._card = card
        self._tracker = tracker
        self._stale_files = stale_files
        self._swept = time.monotonic()

    async def maintain(self) -> None:
        """Checks the folder and sweeps stale files, until it is cancelled."""
        while True:
            await asyncio.sleep(CHECK_S)
            self.check()
            if time.monotonic() - self._swept >= self._stale_files.every_s:
                self.sweep()

    def sweep(self) -> None:
        """Removes stale files of others."""
        self._swept = time.monotonic()
        with self._noted():
            self._tracker.add_folders(existing())
            note = self._stale_files.sweep()
            if note:
                self._tracker.note(note)

    def check(self) -> None:
        """Takes the lock again and rewrites the card when they are gone."""
        with self._noted():
            files, in_place = self._lock.files, self._lock.in_place
            if in_place and files.card.exists():
                return
            if not in_place and not self._tracker.busy:
                self._tracker.closed = True  # cleared after the job: no new ranks are expected
                return
            if in_place or self._retake():
                announcement.write_card(files, self._card)

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """Turns a failure into a note: later checks may succeed, and new screens need them."""
        try:
            yield
        except FolderError as problem:
            self._tracker.note(str(problem))
        except OSError as error:
            where = error.filename or self._lock.files.folder
            self._tracker.note(f"{where}: {error.strerror}")
        except Exception as error:  # noqa: BLE001 - unforeseen; it must not end the task silently
            self._tracker.note(f"{self._lock.files.folder} is not maintained: {error!r}")

    def _retake(self) -> bool:
        claim(self._lock.files.folder)
        taken = self._lock.retake()
        # When another agent runs there, we keep our ranks and leave it the new ones.
        self._tracker.closed = not taken
        if taken:
            self._tracker.note(
                f"{self._lock.files.folder} was cleared: an agent that starts later cannot see the "
                "ranks that already run; set FRTOP_DIR to another folder"
            )
        else:
            self._tracker.note(
                f"{self._lock.files.folder} was cleared, and another agent runs there now: it has "
                "the ranks that started since, this agent has the earlier ones"
            )
        return taken
