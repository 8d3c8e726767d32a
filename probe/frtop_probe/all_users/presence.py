"""Which users have processes on this host that may be ranks, by what everybody may see of them.

Names of processes and threads, and folders of rings: no memory, no environment, no command line.
That there is something to look for is all that it says; a user's own process finds the ranks.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from frtop_probe.outside.discovery import proc_reader
from frtop_probe.ring.folder import SHARED_MEMORY, TEMPORARY
from frtop_probe.ring.layout import SUFFIX

MAX_USERS: Final = 64
"""Users with a process at a time. More do not share a host."""
AGAIN_S: Final = 10.0
"""A process that was looked at is looked at again after so long: it may have become another."""
_MAY_BE_RANK: Final = re.compile(r"python|pypy|pt_|VLLM|vllm|sglang|ray::|torchrun|accelerate")
_FOLDER: Final = re.compile(r"frtop-(\d{1,10})")


@dataclass(frozen=True, slots=True)
class Present:
    """Users by uid: `users` may have ranks, `folders` have a private folder with rings."""

    users: frozenset[int] = frozenset()
    folders: frozenset[int] = frozenset()


@dataclass(slots=True)
class PresenceScanner:
    """Lists /proc; reads anew only what is new, or was read long ago."""

    proc: str = proc_reader.PROC
    parents: tuple[Path, ...] = (SHARED_MEMORY, TEMPORARY)
    _known: dict[tuple[int, int], tuple[float, int | None]] = field(default_factory=dict)

    def scan(self, now: float, ours: Collection[int] = ()) -> Present:
        """Who is there now.

        Args:
            now: in seconds.
            ours: processes that say nothing of their user, nor do their children: those that read.
        """
        folders = frozenset(self._folders())
        known: dict[tuple[int, int], tuple[float, int | None]] = {}
        try:
            with os.scandir(self.proc) as listed:
                for entry in listed:
                    if entry.name.isdecimal():
                        key = int(entry.name), entry.inode()
                        was = self._known.get(key)
                        fresh = was is not None and now - was[0] < AGAIN_S
                        known[key] = (
                            was if was and fresh else (now, self._user_of(entry.name, ours))
                        )
        except OSError:
            return Present(folders, folders)
        self._known = known
        users = {uid for _, uid in known.values() if uid is not None}
        chosen = sorted(users | folders)[:MAX_USERS]
        return Present(frozenset(chosen), folders & frozenset(chosen))

    def _user_of(self, pid: str, ours: Collection[int]) -> int | None:
        """The user of a process that may be a rank; None for others."""
        folder = f"{self.proc}/{pid}"
        found = proc_reader.read_stat(folder)
        if found is None or found.parent == 2 or int(pid) in ours or found.parent in ours:
            return None
        if not _MAY_BE_RANK.match(found.comm) and not proc_reader.is_rank_of_other(
            int(pid), found, self.proc
        ):
            return None
        return proc_reader.real_uid(folder)

    def _folders(self) -> list[int]:
        """The users who have rings in a folder that is theirs alone."""
        found = []
        for parent in self.parents:
            try:
                names = os.listdir(parent)  # noqa: PTH208 - hot
            except OSError:
                continue
            for name in names:
                match = _FOLDER.fullmatch(name)
                if match and _has_rings(parent / name, int(match[1])):
                    found.append(int(match[1]))
        return found


def _has_rings(folder: Path, uid: int) -> bool:
    try:
        status = folder.lstat()
        private = stat.S_ISDIR(status.st_mode) and status.st_uid == uid
        if not private or status.st_mode & 0o077:
            return False
        return any(name.endswith(SUFFIX) for name in os.listdir(folder))  # noqa: PTH208 - hot
    except OSError:
        return False
