"""What a watcher has reported about one job, in a file: the next watcher continues from there.

If two watchers see one job, the one with the lock reports it. When that watcher ends,
the kernel frees the lock, and the other takes over.
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
from frtop_tui.features.watch.episodes import Report
from frtop_tui.job.naming import JobKey

OLDEST_S: Final = 30 * 86400.0
"""Files of jobs that no watcher has watched for this long are removed."""
DRAFT_S: Final = 600.0
SUCCESSOR_S: Final = 600.0
"""A killed watcher may be restarted within this time, and then needs its captures."""
MAX_BYTES: Final = 1 << 20
_decoder = msgspec.json.Decoder(dict[str, Report])


def run_name(key: JobKey) -> str:
    """A name for files and rows: it identifies one start of a job, and has no text from the job."""
    return hashlib.sha256(repr(key).encode()).hexdigest()[:24]


class JobFile:
    """The file with the reports of one job."""

    def __init__(self, folder: Path, key: JobKey) -> None:
        name = run_name(key)
        self._path = folder / f"job-{name}.json"
        self._lock_path = folder / f"job-{name}.lock"
        # A watcher that saw only the start of the job did not know its nonce.
        self._early_path = folder / f"job-{run_name((*key[:-1], ''))}.json"
        self._lock: int | None = None

    def claim(self) -> bool:
        """Tries to take the job; returns whether this watcher reports it from now on.

        Raises:
            OSError: the lock cannot be made.
        """
        if self._lock is not None:
            return True
        descriptor = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # If its last owner removed the file meanwhile, this locks nothing.
            ours = os.fstat(descriptor).st_ino == self._lock_path.stat().st_ino
        except (BlockingIOError, FileNotFoundError):
            ours = False
        except OSError:
            os.close(descriptor)
            raise
        if not ours:
            os.close(descriptor)
            return False
        self._lock = descriptor
        return True

    def load(self) -> dict[str, Report]:
        """Earlier reports; none if the file is missing or damaged."""
        for path in (self._path, self._early_path):
            with suppress(OSError, msgspec.MsgspecError), path.open("rb") as file:
                return _decoder.decode(file.read(MAX_BYTES))
        return {}

    def save(self, reports: dict[str, Report]) -> None:
        """Writes the file. If it raises OSError, the previous file is still there."""
        atomic_file.write(self._path, msgspec.json.encode(reports))

    def release(self) -> None:
        """Leaves the job to another watcher. A job without a report leaves no files."""
        if self._lock is not None:
            if not self._path.exists():
                with suppress(OSError):
                    self._lock_path.unlink()
            os.close(self._lock)
            self._lock = None


def remove_old(folder: Path) -> None:
    """Removes files of past jobs, and drafts of watchers that were killed."""
    now_s = time.time()
    with suppress(OSError):
        for pattern, oldest_s in (("job-*", OLDEST_S), (".job-*", DRAFT_S)):
            for path in folder.glob(pattern):
                with suppress(OSError):
                    is_old = path.stat().st_mtime < now_s - oldest_s
                    if is_old and not (path.suffix == ".lock" and _is_locked(path)):
                        path.unlink()


def captures_of_open_episodes(folder: Path) -> frozenset[str]:
    """Paths of captures of open episodes, in jobs that are watched now or were a moment ago.

    Raises:
        OSError: the folder cannot be listed.
    """
    found = set()
    for path in list(folder.glob("job-*.json")):
        with suppress(OSError, msgspec.MsgspecError), path.open("rb") as file:
            reports = _decoder.decode(file.read(MAX_BYTES)).values()
            captures = {one.capture for one in reports if one.capture and not one.over}
            just_now = time.time() - path.stat().st_mtime < SUCCESSOR_S
            if captures and (just_now or _is_locked(path.with_suffix(".lock"))):
                found |= captures
    return frozenset(found)


def _is_locked(path: Path) -> bool:
    """Whether a watcher has the job. This takes the lock for a moment; other watchers retry."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
