"""How `frtop run` knows that a black box may still be on its way. Standard library only.

The agent holds `flock` on a file beside the rings while a rank lives whose job is
recorded, or a box of one is not written yet; the kernel frees it whatever happens.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from frtop_probe.ring.layout import SUFFIX
from frtop_probe.ring.reader import Ring, RingError
from frtop_probe.ring.space import Space

RECORD: Final = "FRTOP_RECORD"
"""The environment's word for the folder in which black boxes are left."""
BOX_SUFFIX: Final = ".box"
BOX_KIND: Final = "blackbox"
"""Kind of the archive that a box is."""


def lock_file(folder: Path) -> Path:
    """The file that the agent of this process's own space locks in `folder`."""
    return folder / f"recording-{Space.here().name}.lock"


class RecordingLock:
    """The agent's hold on that file, taken and let go again and again."""

    def __init__(self, folder: Path) -> None:
        self._path = lock_file(folder)
        self._descriptor: int | None = None
        self._met = 0

    def hold(self, met: int) -> None:
        """Takes the lock, unless it is held. `met` ranks have been adopted up to now.

        A file that is newer than a rank says that the rank is known. Whoever asks may hold
        the lock for a moment: then the next tick takes it.

        Raises:
            OSError: there is no room for an empty file, or no such lock.
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
        if met != self._met:
            self._met = met
            os.utime(self._descriptor)

    def free(self) -> None:
        """Lets go of it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def remove(self) -> None:
        """Lets go, and leaves nothing behind."""
        if self._descriptor is not None or self._met:
            with suppress(OSError):
                self._path.unlink()
        self.free()


def under_way(folders: list[Path], since_wall_ns: int) -> bool:
    """Whether a box may still come: the lock is held, or a recorded rank is not known yet.

    Only ranks that started after `since_wall_ns` count, by their rings.
    """
    newest = 0
    with suppress(OSError):
        descriptor = os.open(lock_file(folders[0]), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        else:
            newest = os.fstat(descriptor).st_mtime_ns
        finally:
            os.close(descriptor)
    since = max(newest, since_wall_ns)
    return any(_recorded(path, since) for place in folders for path in place.glob(f"*{SUFFIX}"))


def _recorded(path: Path, since_wall_ns: int) -> bool:
    try:
        ring = Ring(path)
    except (RingError, OSError):
        return False
    with suppress(BufferError):
        recorded = bool(ring.who.get("record")) and ring.birth.wall_ns > since_wall_ns
        ring.close()
        return recorded
    return False


def settle(folders: list[Path], since_wall_ns: int, seconds: float) -> bool:
    """Waits until no box is under way any more; False when that took too long."""
    end = time.monotonic() + seconds
    while under_way(folders, since_wall_ns):
        if time.monotonic() >= end:
            return False
        time.sleep(0.03)
    return True
