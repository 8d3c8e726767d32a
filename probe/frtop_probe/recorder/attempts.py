"""Whose turn it is to start the host's agent, and what became of the one that was started.

Written down beside the agent's lock, for all ranks of the host: one tries at a time, ever
more seldom while it is in vain, and one of them tells the person at the job.
"""

from __future__ import annotations

import fcntl
import os
import time
from typing import Final

from frtop_probe.recorder.saying import say
from frtop_probe.ring.folder import AgentFiles

PATIENCE_S: Final = 10.0
"""How long a started agent gets until another rank tries again; twice as long each time."""
MAX_PATIENCE_S: Final = 320.0
ADVICE: Final = "run `frtop agent` on this host"
_RECORD: Final = 64
_MAX_SAID: Final = 4096
_SPEAKER: Final = "frtop agent: "
"""How an agent begins what it has to say before it gives up."""
_spoken: Final[set[str]] = set()
"""What this process has said where nothing could be written down."""


class Turn:
    """One rank's turn to start an agent.

    Without `held` another rank is at it this moment, without `ours` one was a while ago.
    The file holds when the last attempt was, how many there were, and which launcher's
    ranks have told of it. An agent that is up empties it.
    """

    def __init__(self, files: AgentFiles) -> None:
        """Waits for nobody.

        Raises:
            OSError: nothing can be written there, or nothing can be locked.
        """
        self.files = files
        self.held = self.ours = False
        self._at, self._tries, self._told = 0.0, 0, 0
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
        self.held = True
        patience = min(PATIENCE_S * 2 ** min(self._tries - 1, 9), MAX_PATIENCE_S)
        self.ours = self.fresh or abs(time.monotonic() - self._at) >= patience

    def close(self) -> None:
        """The next one's turn."""
        os.close(self._descriptor)

    @property
    def fresh(self) -> bool:
        """Whether nobody has tried since an agent was up, or at all."""
        return not self._tries

    def begin(self) -> None:
        """Counts an attempt, before it is made.

        Raises:
            OSError: no room; the others could not know, and would all try for ever.
        """
        self._tries += 1
        self._at = time.monotonic()
        self._write()

    def tell(self, why: str) -> str:
        """The sentence about a failure; on stderr, too, if this job's ranks did not yet."""
        text = f"no agent could be started: {why}; {ADVICE}"
        if self._told != os.getppid():
            self._told = os.getppid()
            self._write()
            say(text)
        return text

    def _read(self) -> None:
        try:
            at, tries, told = os.pread(self._descriptor, _RECORD, 0).split()
            self._at, self._tries, self._told = float(at), max(0, int(tries)), int(told)
        except ValueError:
            return  # empty, or nothing of ours: as if nobody had tried

    def _write(self) -> None:
        record = f"{self._at:.3f} {self._tries} {self._told}"
        try:
            os.pwrite(self._descriptor, f"{record:<{_RECORD}}".encode(), 0)
        except OSError as error:
            error.filename = str(self.files.spawn)
            raise


class Attempt:
    """An agent that this process started, until it is known what became of it."""

    def __init__(self, files: AgentFiles) -> None:
        self._files = files
        self._begun = time.monotonic()
        self._log_size = self._size()

    def overdue(self) -> str:
        """What to say of one that has been silent for too long; "" before that."""
        if time.monotonic() - self._begun < PATIENCE_S:
            return ""
        return f"it was started, but never came up in {self._files.folder}"

    def _size(self) -> int:
        try:
            return self._files.log.lstat().st_size
        except OSError:
            return 0

    def said(self) -> str:
        """Why it gave up: its last sentence in the log, with the next step, on one line."""
        try:
            descriptor = os.open(self._files.log, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return ""
        try:
            size = os.fstat(descriptor).st_size
            begin = self._log_size if self._log_size <= size else 0
            text = os.pread(descriptor, _MAX_SAID, max(begin, size - _MAX_SAID)).decode(
                errors="replace"
            )
        finally:
            os.close(descriptor)
        _, speaker, sentence = text.rpartition(_SPEAKER)
        lines = [line.strip() for line in sentence.splitlines() if line.strip()]
        chosen = lines if speaker else lines[-1:]  # the last line of a traceback names the error
        return "".join(c for c in "; ".join(chosen) if c.isprintable())[:500]


def tell_without_record(why: str) -> str:
    """As `Turn.tell`, where nothing can be written down: the host's first rank says it."""
    text = f"no agent could be started: {why}; {ADVICE}"
    names = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK")
    local = next((os.environ[name] for name in names if name in os.environ), "0")
    if local == "0" and text not in _spoken:
        _spoken.add(text)
        say(text)
    return text
