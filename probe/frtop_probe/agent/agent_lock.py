"""The lock that one agent per pid namespace and folder holds while it runs."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from typing import Final

from frtop_probe.ring.folder import AgentFiles

LEAVE_S: Final = 10.0
"""How long an agent may take to leave or to start, on a loaded host."""
_ATTEMPTS: Final = 10
_PAUSE_S: Final = 0.03


class AgentLock:
    """An agent holds it from before it opens its sockets until after its last action.

    After locking the file, an agent checks that it is still in the folder. So the holder may
    remove the file, and a cleared folder is noticed.
    """

    def __init__(self, files: AgentFiles, descriptor: int) -> None:
        self.files = files
        self._descriptor = descriptor

    @classmethod
    def take(cls, files: AgentFiles, attempts: int = _ATTEMPTS) -> AgentLock | None:
        """Takes the lock; None when another agent holds it.

        Raises:
            OSError: the lock file cannot be created, or the file system has no locks.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        for attempt in range(attempts):
            if attempt:
                time.sleep(_PAUSE_S)  # a process may hold it only to test it
            descriptor = os.open(files.lock, flags, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                lock = cls(files, descriptor)
                if lock.in_place:
                    return lock
                lock.close()  # its last holder has just removed the file
            except BlockingIOError:
                os.close(descriptor)
            except OSError as error:
                os.close(descriptor)
                error.filename = error.filename or str(files.lock)
                raise
        return None

    @property
    def in_place(self) -> bool:
        """Whether the locked file is the one in the folder."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), self.files.lock.lstat())
        except OSError:
            return False

    def retake(self) -> bool:
        """Takes the lock in a recreated folder; False if another agent has it.

        Raises:
            OSError: as for `take`.
        """
        fresh = self.take(self.files, attempts=1)
        if fresh is None:
            return False
        os.close(self._descriptor)
        self._descriptor = fresh._descriptor  # noqa: SLF001 - same class
        return True

    def remove_files(self, *, log: bool = True) -> None:
        """Removes the card, and the spawn and log files that are empty.

        An agent that starts keeps the `log`, because it is about to write to it. Files with content
        stay: they say why an agent failed to start, and who acted. If the folder was recreated, all
        files stay: they belong to the agent that holds the lock there.
        """
        if not self.in_place:
            return
        with suppress(OSError):
            self.files.card.unlink()
        for path in (self.files.spawn, *([self.files.log] if log else [])):
            with suppress(OSError):
                if not path.lstat().st_size:
                    path.unlink()

    def release(self) -> None:
        """Releases the lock and removes its file."""
        if self.in_place:
            with suppress(OSError):
                self.files.lock.unlink()
        self.close()

    def close(self) -> None:
        """Releases the lock; its file stays."""
        os.close(self._descriptor)


def is_served(files: AgentFiles) -> bool:
    """Whether an agent holds the lock and has its card there.

    An agent that is starting or leaving holds the lock without a card. After `LEAVE_S`, it
    counts as serving.
    """
    until = time.monotonic() + LEAVE_S
    while files.lives:
        if files.card.exists() or time.monotonic() > until:
            return True
        time.sleep(_PAUSE_S)
    return False


def take_when_free(files: AgentFiles) -> AgentLock | None:
    """The lock, once an agent that is leaving has released it; None when another agent serves.

    Raises:
        OSError: as for `AgentLock.take`.
    """
    while (lock := AgentLock.take(files)) is None and not is_served(files):
        pass
    return lock
