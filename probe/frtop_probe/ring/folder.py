"""Where rings, and the agent's own files, lie on this host: one private folder per user.

`FRTOP_DIR` names it; else shared memory, else `/tmp`. Whoever can write there could feed
the agent, and whoever can read there sees the job, so anything but a folder of our own
that is closed to all others is refused.
"""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path
from typing import Final

SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - the folder in it is made 0700
TEMPORARY: Final = Path("/tmp")  # noqa: S108 - likewise
AGENT_LOCK: Final = "agent.lock"
"""The agent of a folder holds `flock` on this file while it lives."""
AGENT_CARD: Final = "agent.json"
"""Where the agent of a folder can be reached."""


class FolderError(Exception):
    """No folder that is ours alone; the text says which, why, and what to do."""


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
        FolderError: as `folder` does; a second choice that is unfit is left out.
    """
    named = os.environ.get("FRTOP_DIR")
    if named:
        return [_own(Path(named))]
    name = f"frtop-{os.getuid()}"
    temporary = TEMPORARY / name
    if not (SHARED_MEMORY.is_dir() and os.access(SHARED_MEMORY, os.W_OK | os.X_OK)):
        return [_own(temporary)]
    found = [_own(SHARED_MEMORY / name)]
    try:
        found.append(_own(temporary))
    except FolderError:
        return found
    return found


def agent_lives(folder: Path) -> bool:
    """Whether an agent holds the lock of `folder`.

    Asking takes a shared lock for a moment, so that many may ask at once; whoever wants
    the lock itself tries more than once.
    """
    try:
        descriptor = os.open(folder / AGENT_LOCK, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _own(path: Path) -> Path:
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
