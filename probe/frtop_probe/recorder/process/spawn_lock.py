"""Decides which rank of the host starts the agent, and when another rank may try again.

The lock file is beside the agent's lock, and all ranks of the host share it: one rank tries at a
time, at growing intervals while attempts fail, and one rank of each job reports the failure.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from typing import Final

from frtop_probe.recorder.guard import log_line
from frtop_probe.ring.folder import AgentFiles, unlock

RETRY_S: Final = 10.0
"""Pause before another rank tries again; it doubles after each failed attempt."""
MAX_RETRY_S: Final = 320.0
ADVICE: Final = "run `frtop agent` on this host"
_RECORD: Final = 64
_MAX_LOG: Final = 4096
_LOG_PREFIX: Final = "frtop agent: "
"""Prefix of the last message of an agent that gives up."""
_AUDITED: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ")
"""How lines begin in which an agent writes who asked for what."""
_logged: Final[set[str]] = set()
"""Messages that this process has logged without a lock file."""


class SpawnLock:
    """One attempt of this rank to take the lock, without waiting.

    `acquired` is false while another rank is starting an agent. `due` is false until the
    pause after the last attempt is over. The file holds the time of the last attempt, the
    number of attempts, and the launcher whose ranks have reported the failure. A running
    agent empties it.
    """

    def __init__(self, files: AgentFiles) -> None:
        """Tries to acquire the lock.

        Raises:
            OSError: the file cannot be written, or the file system does not support such locks.
        """
        self.files = files
        self.acquired = self.due = False
        self._last_try, self._tries, self._reported_by = 0.0, 0, 0
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(files.spawn, flags, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._read()
        except BlockingIOError:
            return
        except OSError as error:
            os.close(self._descriptor)
            error.filename = str(files.spawn)
            raise
        self.acquired = True
        pause = min(RETRY_S * 2 ** min(self._tries - 1, 9), MAX_RETRY_S)
        self.due = self.untried or abs(time.monotonic() - self._last_try) >= pause

    def close(self) -> None:
        """Releases the lock."""
        unlock(self._descriptor)
        os.close(self._descriptor)

    @property
    def untried(self) -> bool:
        """Whether no rank has tried since an agent last ran."""
        return not self._tries

    def count_attempt(self) -> None:
        """Records an attempt before it is made.

        Raises:
            OSError: the file cannot be written; other ranks would try forever.
        """
        self._tries += 1
        self._last_try = time.monotonic()
        self._write()

    def report(self, why: str) -> str:
        """Returns the message for a failure; logs it unless a rank of this job has done so."""
        text = failure_message(why)
        if self._reported_by != os.getppid():
            self._reported_by = os.getppid()
            self._write()
            log_line(text)
        return text

    def _read(self) -> None:
        try:
            last_try, tries, reported_by = os.pread(self._descriptor, _RECORD, 0).split()
            self._last_try, self._tries = float(last_try), max(0, int(tries))
            self._reported_by = int(reported_by)
        except ValueError:
            return  # empty or not ours: treat as if no rank had tried

    def _write(self) -> None:
        record = f"{self._last_try:.3f} {self._tries} {self._reported_by}"
        try:
            os.pwrite(self._descriptor, f"{record:<{_RECORD}}".encode(), 0)
        except OSError as error:
            error.filename = str(self.files.spawn)
            raise


class SpawnAttempt:
    """An agent started by this process, until its outcome is known."""

    def __init__(self, files: AgentFiles) -> None:
        self._files = files
        self._began = time.monotonic()
        self._log_size = self._size()

    def overdue(self) -> str:
        """Returns why the agent counts as failed after a long silence; "" until then."""
        if time.monotonic() - self._began < RETRY_S:
            return ""
        return f"it was started, but never came up in {self._files.folder}"

    def _size(self) -> int:
        try:
            return self._files.log.lstat().st_size
        except OSError:
            return 0

    def last_message(self) -> str:
        """Returns the agent's last message in its log, with its advice, on one line."""
        try:
            descriptor = os.open(self._files.log, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return ""
        try:
            size = os.fstat(descriptor).st_size
            begin = self._log_size if self._log_size <= size else 0
            text = os.pread(descriptor, _MAX_LOG, max(begin, size - _MAX_LOG)).decode(
                errors="replace"
            )
        finally:
            os.close(descriptor)
        _, prefix, message = text.rpartition(_LOG_PREFIX)
        lines = [line.strip() for line in message.splitlines() if line.strip()]
        lines = [line for line in lines if not _AUDITED.match(line)]
        chosen = lines if prefix else lines[-1:]  # the last line of a traceback names the error
        return "".join(c for c in "; ".join(chosen) if c.isprintable())[:500]


def report_without_lock(why: str) -> str:
    """Like `SpawnLock.report`, if no file can be written: the host's first rank logs it."""
    text = failure_message(why)
    if is_first_of_host() and text not in _logged:
        _logged.add(text)
        log_line(text)
    return text


def is_first_of_host() -> bool:
    """Whether the launcher calls this rank the first of its job on this host."""
    names = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK")
    return next((os.environ[name] for name in names if name in os.environ), "0") == "0"


def failure_message(why: str) -> str:
    """Returns the message for the user, with a next step."""
    return f"no agent could be started: {why}; {ADVICE}"
