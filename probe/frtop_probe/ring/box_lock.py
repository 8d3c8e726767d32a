"""Tells `frtop run` whether an agent may still be writing a black box.

The agent holds `flock` on a file beside the rings while a rank of a recorded job is alive or
its black box is not written yet. The kernel frees the lock when the agent dies.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from frtop_probe.ring.folder import lock_state
from frtop_probe.ring.header import RingError
from frtop_probe.ring.layout import SUFFIX
from frtop_probe.ring.pid_namespace import PidNamespace
from frtop_probe.ring.reader import Ring

RECORD: Final = "FRTOP_RECORD"
"""Environment variable with the folder for black boxes."""
BOX_SUFFIX: Final = ".box"
BOX_KIND: Final = "blackbox"
"""Archive kind of a black box."""
_POLL_S: Final = 0.03


def lock_file(folder: Path) -> Path:
    """Returns the file that the agent of this process's pid namespace locks in `folder`."""
    return folder / f"recording-{PidNamespace.here().name}.lock"


class RecordingLock:
    """The agent's lock on that file, which it acquires and releases repeatedly."""

    def __init__(self, folder: Path) -> None:
        self._path = lock_file(folder)
        self._descriptor: int | None = None
        self._ranks_seen = 0

    def acquire(self, ranks_seen: int) -> None:
        """Acquires the lock if it is free, and writes to the file when ranks were added.

        A file that was written after a rank's start means that the agent knows this rank. An empty
        one means nothing: it is there before it is locked. `under_way` holds the lock briefly while
        it tests it; the next tick then acquires it.

        Raises:
            OSError: the file cannot be created, or the file system has no such locks.
        """
        if self._descriptor is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(self._path, flags, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(descriptor)
                if isinstance(error, BlockingIOError):
                    return
                raise
            self._descriptor = descriptor
        if ranks_seen != self._ranks_seen:
            self._ranks_seen = ranks_seen
            os.pwrite(self._descriptor, b"\n", 0)
            os.utime(self._descriptor)

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def remove(self) -> None:
        """Releases the lock and removes its file."""
        if self._descriptor is not None or self._ranks_seen:
            with suppress(OSError):
                self._path.unlink()
        self.release()


def under_way(folders: list[Path], since_wall_ns: int) -> bool:
    """Returns whether the agent may still write a black box.

    It may while it holds the lock, or does not know a recorded rank yet. Only ranks whose rings
    were created after `since_wall_ns` count.
    """
    locked, newest = lock_state(lock_file(folders[0]))
    if locked:
        return True
    since = max(newest, since_wall_ns)
    return any(
        _is_recorded(path, since) for folder in folders for path in folder.glob(f"*{SUFFIX}")
    )


def _is_recorded(path: Path, since_wall_ns: int) -> bool:
    try:
        ring = Ring(path)
    except (RingError, OSError):
        return False
    ring.close()
    return bool(ring.rank_identity.get("record")) and ring.header.wall_ns > since_wall_ns


def wait_for_boxes(folders: list[Path], since_wall_ns: int, seconds: float) -> bool:
    """Waits until no black box is under way; returns False after a timeout in seconds."""
    end = time.monotonic() + seconds
    while under_way(folders, since_wall_ns):
        if time.monotonic() >= end:
            return False
        time.sleep(_POLL_S)
    return True
