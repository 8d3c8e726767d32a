"""What a watcher has said of one job, in a file: its successor goes on from there.

Two watchers that see one job share it out by a lock: whoever has it reports. When that one ends,
the kernel frees the lock, and the other goes on.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from frtop_probe import atomic_file
from frtop_tui.job.naming import JobKey
from frtop_tui.watch.episodes import Report

OLDEST_S: Final = 30 * 86400.0
"""Files of jobs that nobody has watched for so long are removed."""
MAX_BYTES: Final = 1 << 20
_decoder = msgspec.json.Decoder(dict[str, Report])


def run_name(key: JobKey) -> str:
    """A name for files and rows: one start of a job, and never what the job says of itself."""
    return hashlib.sha256(repr(key).encode()).hexdigest()[:24]


class JobFile:
    """The reports of one job, by its key."""

    def __init__(self, folder: Path, key: JobKey) -> None:
        name = run_name(key)
        self._path = folder / f"job-{name}.json"
        self._lock_path = folder / f"job-{name}.lock"
        # A watcher that saw only the start of the job knew no nonce.
        self._early_path = folder / f"job-{run_name((*key[:-1], ''))}.json"
        self._lock: int | None = None

    def claim(self) -> bool:
        """Whether this watcher reports the job from now on.

        Raises:
            OSError: the lock cannot be made.
        """
        if self._lock is not None:
            return True
        descriptor = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except OSError:
            os.close(descriptor)
            raise
        self._lock = descriptor
        return True

    def load(self) -> dict[str, Report]:
        """What was said before; a file that is missing or damaged says nothing."""
        for path in (self._path, self._early_path):
            with suppress(OSError, msgspec.MsgspecError), path.open("rb") as file:
                return _decoder.decode(file.read(MAX_BYTES))
        return {}

    def save(self, reports: dict[str, Report]) -> None:
        """Raises OSError; then the last file is still there."""
        atomic_file.write(self._path, msgspec.json.encode(reports))

    def release(self) -> None:
        """Gives the job up to another watcher."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def remove_old(folder: Path) -> None:
    """Removes what is left of jobs of the past."""
    oldest = time.time() - OLDEST_S
    with suppress(OSError):
        for path in folder.glob("job-*"):
            with suppress(OSError):
                if path.stat().st_mtime < oldest:
                    path.unlink()
