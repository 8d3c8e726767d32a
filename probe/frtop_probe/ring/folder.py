"""Where rings, and the agent's own files, lie on this host: one private folder per user.

`FRTOP_DIR` names it; else shared memory, else `/tmp`. Whoever can write there could feed
the agent, and whoever can read there sees the job, so anything but a folder of our own
that is closed to all others is refused.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from frtop_probe.ring.space import Space

SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - the folder in it is made 0700
TEMPORARY: Final = Path("/tmp")  # noqa: S108 - likewise
AGENT_FILE: Final = re.compile(r"agent-(\d{1,20}-[0-9a-f]{8})\.(?:lock|json|spawn|log)")
"""What belongs to the agent of a space, by name."""


class FolderError(Exception):
    """No folder that is ours alone; the text says which, why, and what to do."""


@dataclass(frozen=True, slots=True)
class AgentFiles:
    """What the agent of one space keeps in a folder."""

    folder: Path
    space: str

    @classmethod
    def here(cls, folder: Path) -> AgentFiles:
        """Of this process's own space."""
        return cls(folder, Space.here().name)

    @property
    def lock(self) -> Path:
        """The agent holds `flock` on it while it lives."""
        return self._named("lock")

    @property
    def card(self) -> Path:
        """Where the agent can be reached."""
        return self._named("json")

    @property
    def spawn(self) -> Path:
        """Who starts an agent holds `flock` on it; it tells of attempts that failed."""
        return self._named("spawn")

    @property
    def log(self) -> Path:
        """What an agent said that was started by a rank; empty as a rule."""
        return self._named("log")

    @property
    def lives(self) -> bool:
        """Whether the agent holds its lock.

        Asking takes a shared lock for a moment, so that many may ask at once; whoever
        wants the lock itself tries more than once.
        """
        try:
            descriptor = os.open(self.lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False  # a file system without such locks; whoever starts an agent says so
        finally:
            os.close(descriptor)
        return False

    def _named(self, suffix: str) -> Path:
        return self.folder / f"agent-{self.space}.{suffix}"


def agent_lives(folder: Path) -> bool:
    """Whether the agent of `folder` that can see this process lives."""
    return AgentFiles.here(folder).lives


def folder() -> Path:
    """The folder of this user (or of `FRTOP_DIR`) on this host, made if it is missing.

    Raises:
        FolderError: it belongs to somebody else, is open to others, is a link, or cannot
            be made.
    """
    return candidates()[0]


def candidates() -> list[Path]:
    """`folder()` first, then where a ring may go when there is no room in it.

    Raises:
        FolderError: none is fit; says what is wrong with the first.
    """
    named = os.environ.get("FRTOP_DIR")
    if named:
        return [claim(Path(named).absolute())]  # the program may change its folder
    places = [SHARED_MEMORY, TEMPORARY]
    if not (SHARED_MEMORY.is_dir() and os.access(SHARED_MEMORY, os.W_OK | os.X_OK)):
        places = [TEMPORARY]
    found, problems = [], []
    for place in places:
        try:
            found.append(claim(place / f"frtop-{os.getuid()}"))
        except FolderError as problem:
            problems.append(problem)
    if not found:
        raise problems[0]
    return found


def claim(path: Path) -> Path:
    """`path`, made if it is missing, if it is a folder of ours alone.

    Raises:
        FolderError: it is not, or cannot be made.
    """
    advice = "set FRTOP_DIR to a folder of your own"
    try:
        path.mkdir(mode=0o700, parents=False, exist_ok=False)
    except FileExistsError:
        pass
    except OSError as error:
        raise FolderError(f"{path} cannot be made ({error.strerror}); {advice}") from error
    try:
        status = path.lstat()
    except OSError as error:
        raise FolderError(f"{path} cannot be read ({error.strerror}); {advice}") from error
    if stat.S_ISLNK(status.st_mode):
        raise FolderError(f"{path} is a link; remove it, or {advice}")
    if not stat.S_ISDIR(status.st_mode):
        raise FolderError(f"{path} is no folder; remove it, or {advice}")
    if status.st_uid != os.getuid():
        raise FolderError(f"{path} belongs to user {status.st_uid}; {advice}")
    if status.st_mode & 0o077:
        raise FolderError(f"{path} is open to other users; chmod 700 {path}, or {advice}")
    return path
