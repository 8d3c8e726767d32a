"""What nobody else will ever clear away: leftovers of containers and boots that are over.

Only what is ours by name and dead by its lock goes, some time after its last sign of life,
and only if no agent lives that could still tell of it. Our own space is the roster's.
"""

from __future__ import annotations

import errno
import re
import socket
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from frtop_probe.agent.announcement import Lock
from frtop_probe.ring import layout, socket_path
from frtop_probe.ring.folder import AGENT_FILE, AgentFiles
from frtop_probe.ring.pid_namespace import PidNamespace
from frtop_probe.ring.reader import RingError, locked, read_summary

UNFINISHED_S: Final = 60.0
"""What is locked by nobody and cannot be read may still be in the making for so long."""
SWEEP_S: Final = 10.0
_OURS: Final = r"\d{1,10}-\d{1,20}(?:-\d{1,20})?"
_RING: Final = re.compile(_OURS + re.escape(layout.SUFFIX))
_SOCKET: Final = re.compile(_OURS + re.escape(socket_path.SUFFIX))
_DRAFT: Final = re.compile(r"agent-\d{1,20}-[0-9a-f]{8}\.[0-9a-f]{8}\.draft")


class Strays:
    """Leftovers in `folders` of others than `here`; the agents' files lie in the first."""

    def __init__(self, folders: Iterable[Path], here: PidNamespace, grace_s: float) -> None:
        self._folders = tuple(folders)
        self._here = here.name
        self._grace_s = grace_s
        self._unheard: set[str] = set()
        self.every_s = min(SWEEP_S, grace_s / 4)

    def sweep(self) -> str:
        """Removes what is due. Gives a note for the operator, or ""."""
        now = time.time()
        inhabited, unheard = set(), set()
        for path in self._named(_RING):
            try:
                seen = read_summary(path)
            except RingError:
                self._bury_unreadable(path, now)
                continue
            except OSError:
                continue
            space = PidNamespace(seen.header.boot, seen.header.pid_namespace).name
            if space == self._here:
                continue
            heard = AgentFiles(self._folders[0], space).lives
            if not seen.writer_lives and not heard and self._over(seen.last_sign_wall_ns, now):
                _bury(path, seen.inode)
                continue
            inhabited.add(space)
            if seen.writer_lives and not heard:
                unheard.add(space)
        self._clear_sockets(now)
        self._clear_agents(inhabited, now)
        lasting, self._unheard = self._unheard & unheard, unheard
        return _note(lasting) if lasting else ""

    def _over(self, last_sign_wall_ns: int, now: float) -> bool:
        return now - last_sign_wall_ns / 1e9 >= self._grace_s

    def _bury_unreadable(self, path: Path, now: float) -> None:
        """A ring that was never finished, or of another version; its rank is dead."""
        with suppress(OSError):
            inode = path.lstat().st_ino
            if self._aged(path, now, UNFINISHED_S) and not locked(path):
                _bury(path, inode)

    def _aged(self, path: Path, now: float, least_s: float = 0.0) -> bool:
        try:
            age = now - path.lstat().st_mtime
        except OSError:
            return False
        return age >= max(self._grace_s, least_s)

    def _clear_sockets(self, now: float) -> None:
        for path in self._named(_SOCKET):
            with suppress(OSError):
                if (
                    stat.S_ISSOCK(path.lstat().st_mode)
                    and not path.with_suffix(layout.SUFFIX).exists()
                    and self._aged(path, now)
                    and _nobody_listens(path)
                ):
                    path.unlink()

    def _clear_agents(self, inhabited: set[str], now: float) -> None:
        """Files of agents that were killed, in spaces of which nothing else is left."""
        home = self._folders[0]
        for path in self._named(_DRAFT):
            with suppress(OSError):
                if self._aged(path, now, UNFINISHED_S):
                    path.unlink()
        found: dict[str, list[Path]] = {}
        for path in self._named(AGENT_FILE):
            space = path.stem.removeprefix("agent-")
            if path.parent == home and space != self._here and space not in inhabited:
                found.setdefault(space, []).append(path)
        for space, paths in found.items():
            with suppress(OSError):
                self._clear_agent(AgentFiles(home, space), paths, now)

    def _clear_agent(self, files: AgentFiles, paths: list[Path], now: float) -> None:
        if files.lives or not all(self._aged(path, now) for path in paths):
            return
        lock = Lock.take(files, tries=1)
        if lock is None:
            return
        for path in (files.card, files.spawn, files.log):
            with suppress(OSError):
                path.unlink()
        lock.release()

    def _named(self, names: re.Pattern[str]) -> Iterator[Path]:
        for folder in self._folders:
            with suppress(OSError):
                yield from [path for path in folder.iterdir() if names.fullmatch(path.name)]


def _bury(path: Path, inode: int) -> None:
    """Unless another ring has taken its name meanwhile."""
    with suppress(OSError):
        if path.lstat().st_ino == inode:
            socket_path.remove_ring(path)


def _nobody_listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as asking, socket_path.address(path) as address:
        asking.setblocking(False)
        return asking.connect_ex(address) == errno.ECONNREFUSED


def _note(spaces: set[str]) -> str:
    many = f"{len(spaces)} other containers have" if len(spaces) > 1 else "another container has"
    return (
        f"{many} ranks in this folder, and no agent: run `frtop agent` there, "
        "only an agent inside a container can look at its ranks"
    )
