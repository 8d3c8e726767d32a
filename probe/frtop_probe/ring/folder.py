"""A user's private folder on this host, with rings and the agent's files.

`FRTOP_DIR` names the folder; otherwise it is in shared memory, in `/run/user/UID`, or in `/tmp`.
Anyone who can write there could forge ranks, and anyone who can read there sees the job. So frtop
refuses a folder unless this user owns it and it is closed to all others.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Final

from frtop_probe.ring.layout import SUFFIX
from frtop_probe.ring.pid_namespace import PidNamespace

SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - the folder in it is made 0700
SESSIONS: Final = Path("/run/user")
TEMPORARY: Final = Path("/tmp")  # noqa: S108 - likewise
ROOM: Final = 256 * 1024
"""Bytes for the files of an agent."""
AGENT_FILE: Final = re.compile(r"agent-(\d{1,20}-[0-9a-f]{8})\.(?:lock|json|spawn|log)")
"""Names of an agent's files, with the name of its pid namespace."""

_ADVICE: Final = "set FRTOP_DIR to a folder of your own"


class FolderError(Exception):
    """No folder is private to this user; the text names the folder, the reason and a fix.

    Attributes:
        why: the text without the fix.
        exists: whether the path exists.
    """

    def __init__(self, why: str, advice: str, *, exists: bool = False) -> None:
        super().__init__(f"{why}; {advice}")
        self.why = why
        self.exists = exists


@dataclass(frozen=True, slots=True)
class AgentFiles:
    """The files of the agent of one pid namespace in a folder."""

    folder: Path
    namespace: str

    @classmethod
    def here(cls, folder: Path) -> AgentFiles:
        """Returns the files of this process's pid namespace."""
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

    The mtime is 0 if there is no file, nobody has written to it yet, or its file system lacks such
    locks. The test takes a shared lock briefly, so that many processes can test at once; a process
    that wants the lock itself therefore tries more than once.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False, 0
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        status = os.fstat(descriptor)
        unlock(descriptor)
    except BlockingIOError:
        return True, 0
    except OSError:
        return False, 0
    else:
        return False, status.st_mtime_ns if status.st_size else 0
    finally:
        os.close(descriptor)


def unlock(descriptor: int) -> None:
    """Releases `flock` even if a fork of this process has a copy of the descriptor.

    A data worker that is forked just while a rank holds a lock would hold it until it ends.
    """
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def agent_lives(folder: Path) -> bool:
    """Returns whether the agent of `folder` in this process's pid namespace is alive."""
    return AgentFiles.here(folder).lives


def folder(*, make: bool = True) -> Path:
    """Returns this user's folder on this host (or `FRTOP_DIR`), created if it is missing.

    Args:
        make: if False, creates nothing and returns the folder that it would use.

    Raises:
        FolderError: no folder is private to this user; the text says why the first one is not.
    """
    return candidates(make=make)[0]


def candidates(*, make: bool = True) -> list[Path]:
    """Returns `folder()`, then the other folders that may hold rings.

    First comes the folder of a running agent, else one with rings, else the first with room for an
    agent's files. So ranks, agents and operators agree, even if some of them do not see all folders
    (`/run/user` comes and goes with a user's sessions).

    Raises:
        FolderError: no folder is usable; the text says why the first one is not.
    """
    named = os.environ.get("FRTOP_DIR")
    if named:
        # Absolute: the program may change its working folder.
        return [claim(Path(named).absolute(), make=make)]
    found, errors = _sorted_out(lambda path: claim(path, make=make))
    if not found:
        raise errors[0]
    return preferred(found)


def preferred(folders: Iterable[Path]) -> list[Path]:
    """Returns the folders in their current order of use; see `candidates`."""
    return sorted(folders, key=_preference)


def existing() -> list[Path]:
    """Returns the folders of `candidates` that exist and are private to this user; makes none."""
    named = os.environ.get("FRTOP_DIR")
    if named:
        with suppress(FolderError):
            return [_private(Path(named).absolute())]
        return []
    return preferred(_sorted_out(_private)[0])


def taken() -> str:
    """Returns which usual folders other users have taken, and which one is in use; "" for none."""
    if os.environ.get("FRTOP_DIR"):
        return ""
    used, errors = _sorted_out(lambda path: claim(path, make=False))
    whose = [error.why for error in errors if error.exists]
    if not used or not whose:
        return ""
    return f"{' and '.join(whose)}: not used, rings are in {preferred(used)[0]}"


def _sorted_out(check: Callable[[Path], Path]) -> tuple[list[Path], list[FolderError]]:
    """Returns the usual folders that are usable, and why the others are not."""
    uid = os.getuid()
    own = SESSIONS / str(uid)
    found: list[Path] = []
    errors: list[FolderError] = []
    for parent in (SHARED_MEMORY, own, TEMPORARY):
        try:
            if parent == own:
                _private(own)  # login creates it; elsewhere it is missing
            found.append(check(parent / f"frtop-{uid}"))
        except FolderError as error:
            if parent != own:
                errors.append(error)
    return found, errors


def _preference(path: Path) -> tuple[bool, bool, bool]:
    """Sort key: the smallest comes first."""
    lives = agent_lives(path)
    return not lives, not (lives or _has_rings(path)), not _has_room(path)


def _has_rings(path: Path) -> bool:
    try:
        with os.scandir(path) as entries:
            return any(entry.name.endswith(SUFFIX) for entry in entries)
    except OSError:
        return False


def _has_room(path: Path) -> bool:
    """Returns whether the file system reports room for small files."""
    for place in (path, path.parent):
        with suppress(OSError):
            found = os.statvfs(place)
            files = not found.f_files or found.f_favail > 0
            return files and found.f_bavail * found.f_frsize >= ROOM
    return False


def claim(path: Path, *, make: bool = True) -> Path:
    """Creates `path` if it is missing, and checks that it is private to this user.

    Args:
        path: the folder.
        make: if False, only checks whether it could be created.

    Raises:
        FolderError: it is not private, or cannot be created.
    """
    if not make and not _exists(path):
        if os.access(path.parent, os.W_OK | os.X_OK):
            return path
        why = f"{path.parent} is missing, or not writable"
        raise FolderError(f"{path} cannot be created ({why})", _ADVICE)
    try:
        path.mkdir(mode=0o700, parents=False, exist_ok=False)
    except FileExistsError:
        pass
    except OSError as error:
        raise FolderError(f"{path} cannot be created ({error.strerror})", _ADVICE) from error
    return _private(path)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # it is in a folder that this user may not enter
        return False


def _private(path: Path) -> Path:
    """Checks a folder that should exist.

    Raises:
        FolderError: it does not exist, or others could change it.
    """
    try:
        status = path.lstat()
    except OSError as error:
        raise FolderError(f"{path} cannot be read ({error.strerror})", _ADVICE) from error
    if stat.S_ISLNK(status.st_mode):
        raise FolderError(f"{path} is a link", f"remove it, or {_ADVICE}", exists=True)
    if not stat.S_ISDIR(status.st_mode):
        raise FolderError(f"{path} is not a folder", f"remove it, or {_ADVICE}", exists=True)
    if status.st_uid != os.getuid():
        raise FolderError(f"{path} belongs to user {status.st_uid}", _ADVICE, exists=True)
    if status.st_mode & 0o077:
        advice = f"chmod 700 {quote(str(path))}, or {_ADVICE}"
        raise FolderError(f"{path} is open to other users", advice, exists=True)
    return path
