"""The private folder of a user on this host, with rings and the agent's files.

`FRTOP_DIR` names the folder; otherwise it is in shared memory, or in `/tmp`. Who can write
there could feed the agent, and who can read there sees the job. So a folder is refused
unless this user owns it and it is closed to all others.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Final

from frtop_probe.ring.pid_namespace import PidNamespace

SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - the folder in it is made 0700
TEMPORARY: Final = Path("/tmp")  # noqa: S108 - likewise
AGENT_FILE: Final = re.compile(r"agent-(\d{1,20}-[0-9a-f]{8})\.(?:lock|json|spawn|log)")
"""Names of an agent's files, with the name of its pid namespace."""

_ADVICE: Final = "set FRTOP_DIR to a folder of your own"


class FolderError(Exception):
    """No folder is private to this user; the text names the folder, the reason and a fix."""


@dataclass(frozen=True, slots=True)
class AgentFiles:
    """The files of the agent of one pid namespace in a folder."""

    folder: Path
    namespace: str

    @classmethod
    def here(cls, folder: Path) -> AgentFiles:
        """Returns those of this process's pid namespace."""
        return cls(folder, PidNamespace.here().name)

    @property
    def lock(self) -> Path:
        """File on which the agent holds `flock` while it is alive."""
        return self._named("lock")

    @property
    def card(self) -> Path:
        """File with the agent's address."""
        return self._named("json")

    @property
    def spawn(self) -> Path:
        """File on which a rank holds `flock` while it starts an agent; it records failures."""
        return self._named("spawn")

    @property
    def log(self) -> Path:
        """Output of an agent that a rank has started; usually empty."""
        return self._named("log")

    @property
    def lives(self) -> bool:
        """Whether the agent holds its lock."""
        return lock_state(self.lock)[0]

    def _named(self, suffix: str) -> Path:
        return self.folder / f"agent-{self.namespace}.{suffix}"


def lock_state(path: Path) -> tuple[bool, int]:
    """Returns whether a process holds `flock` on a file, and the file's mtime in ns if none does.

    The mtime is 0 if there is no file, or no such locks on its file system. The test takes a
    shared lock briefly, so that many processes can test at once; a process that wants the lock
    itself therefore tries more than once.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False, 0
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False, os.fstat(descriptor).st_mtime_ns
    except BlockingIOError:
        return True, 0
    except OSError:
        return False, 0
    finally:
        os.close(descriptor)


def agent_lives(folder: Path) -> bool:
    """Returns whether the agent of `folder` in this process's pid namespace is alive."""
    return AgentFiles.here(folder).lives


def folder(*, make: bool = True) -> Path:
    """Returns this user's folder on this host (or `FRTOP_DIR`), created if it is missing.

    Args:
        make: with False nothing is created, and the folder that would be is returned.

    Raises:
        FolderError: the folder belongs to another user, is open to others, is a link, or
            cannot be created.
    """
    return candidates(make=make)[0]


def candidates(*, make: bool = True) -> list[Path]:
    """Returns `folder()`, then the folders for rings that do not fit in it.

    Raises:
        FolderError: no folder is usable; the text says why the first one is not.
    """
    named = os.environ.get("FRTOP_DIR")
    if named:
        # Absolute: the program may change its working folder.
        return [claim(Path(named).absolute(), make=make)]
    parents = [SHARED_MEMORY, TEMPORARY]
    if not (SHARED_MEMORY.is_dir() and os.access(SHARED_MEMORY, os.W_OK | os.X_OK)):
        parents = [TEMPORARY]
    found, errors = [], []
    for parent in parents:
        try:
            found.append(claim(parent / f"frtop-{os.getuid()}", make=make))
        except FolderError as error:
            errors.append(error)
    if not found:
        raise errors[0]
    return found


def existing() -> list[Path]:
    """Returns the folders of `candidates` that exist and are private to this user; makes none."""
    named = os.environ.get("FRTOP_DIR")
    own = f"frtop-{os.getuid()}"
    folders = [Path(named).absolute()] if named else [SHARED_MEMORY / own, TEMPORARY / own]
    found = []
    for folder in folders:
        with suppress(FolderError):
            found.append(_private(folder))
    return found


def claim(path: Path, *, make: bool = True) -> Path:
    """Creates `path` if it is missing, and checks that it is private to this user.

    Args:
        path: the folder.
        make: with False it is only asked whether it could be created.

    Raises:
        FolderError: it is not private, or cannot be created.
    """
    if not make and not _exists(path):
        if os.access(path.parent, os.W_OK | os.X_OK):
            return path
        why = f"{path.parent} is missing, or not writable"
        raise FolderError(f"{path} cannot be created ({why}); {_ADVICE}")
    try:
        path.mkdir(mode=0o700, parents=False, exist_ok=False)
    except FileExistsError:
        pass
    except OSError as error:
        raise FolderError(f"{path} cannot be created ({error.strerror}); {_ADVICE}") from error
    return _private(path)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # it lies in a folder that this user may not enter
        return False


def _private(path: Path) -> Path:
    """Checks a folder that should exist.

    Raises:
        FolderError: it does not, or others could change it.
    """
    try:
        status = path.lstat()
    except OSError as error:
        raise FolderError(f"{path} cannot be read ({error.strerror}); {_ADVICE}") from error
    if stat.S_ISLNK(status.st_mode):
        raise FolderError(f"{path} is a link; remove it, or {_ADVICE}")
    if not stat.S_ISDIR(status.st_mode):
        raise FolderError(f"{path} is not a folder; remove it, or {_ADVICE}")
    if status.st_uid != os.getuid():
        raise FolderError(f"{path} belongs to user {status.st_uid}; {_ADVICE}")
    if status.st_mode & 0o077:
        raise FolderError(
            f"{path} is open to other users; chmod 700 {quote(str(path))}, or {_ADVICE}"
        )
    return path
