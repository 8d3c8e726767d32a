"""Removes files left in the folders by killed containers or before a reboot.

A file is removed if its name is ours, nobody holds its lock, its last sign of life is old
enough, and no running agent serves it. The rank tracker removes the rings of our own pid
namespace.
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

from frtop_probe.agent.agent_lock import AgentLock
from frtop_probe.ring import beside, layout
from frtop_probe.ring.folder import AGENT_FILE, AgentFiles
from frtop_probe.ring.header import RingError, locked, read_summary
from frtop_probe.ring.pid_namespace import PidNamespace

UNFINISHED_S: Final = 60.0
"""How long an unreadable file without a lock may count as unfinished."""
SWEEP_S: Final = 10.0
_OURS: Final = r"\d{1,10}-\d{1,20}(?:-\d{1,20})?"
_RING: Final = re.compile(_OURS + re.escape(layout.SUFFIX))
_SOCKET: Final = re.compile(_OURS + re.escape(beside.SUFFIX))
_DRAFT: Final = re.compile(r"agent-\d{1,20}-[0-9a-f]{8}\.[0-9a-f]{8}\.draft")


class StaleFiles:
    """Stale files of pid namespaces other than `here`; the first folder has the agents' files."""

    def __init__(self, folders: Iterable[Path], here: PidNamespace, grace_s: float) -> None:
        self._folders = tuple(folders)
        self._here = here.name
        self._grace_s = grace_s
        self._without_agent: set[str] = set()
        self.every_s = min(SWEEP_S, grace_s / 4)

    def sweep(self) -> str:
        """Removes stale files; returns a note for operators, or ""."""
        now = time.time()
        inhabited, without_agent = set(), set()
        for path in self._files(_RING):
            try:
                seen = read_summary(path)
            except RingError:
                self._remove_unreadable(path, now)
                continue
            except OSError:
                continue
            space = PidNamespace(seen.header.boot, seen.header.pid_namespace).name
            if space == self._here:
                continue
            served = AgentFiles(self._folders[0], space).lives
            if not seen.writer_lives and not served and self._expired(seen.last_sign_wall_ns, now):
                _remove(path, seen.inode)
                continue
            inhabited.add(space)
            if seen.writer_lives and not served:
                without_agent.add(space)
        self._remove_sockets(now)
        self._remove_agents_files(inhabited, now)
        # Sends a note only if the last sweep saw the same: an agent may be starting.
        lasting = self._without_agent & without_agent
        self._without_agent = without_agent
        return _note(lasting) if lasting else ""

    def _expired(self, last_sign_wall_ns: int, now: float) -> bool:
        return now - last_sign_wall_ns / 1e9 >= self._grace_s

    def _remove_unreadable(self, path: Path, now: float) -> None:
        """Removes a ring that is unfinished or of another version, if its rank is dead."""
        with suppress(OSError):
            inode = path.lstat().st_ino
            if self._is_old(path, now, UNFINISHED_S) and not locked(path):
                _remove(path, inode)

    def _is_old(self, path: Path, now: float, least_s: float = 0.0) -> bool:
        try:
            age = now - path.lstat().st_mtime
        except OSError:
            return False
        return age >= max(self._grace_s, least_s)

    def _remove_sockets(self, now: float) -> None:
        for path in self._files(_SOCKET):
            with suppress(OSError):
                if (
                    stat.S_ISSOCK(path.lstat().st_mode)
                    and not path.with_suffix(layout.SUFFIX).exists()
                    and self._is_old(path, now)
                    and _nobody_listens(path)
                ):
                    path.unlink()
        for path in self._files(beside.FILES):
            ring = path.with_name(path.name.partition(".")[0] + layout.SUFFIX)
            with suppress(OSError):
                if not ring.exists() and self._is_old(path, now):
                    path.unlink()

    def _remove_agents_files(self, inhabited: set[str], now: float) -> None:
        """Removes files of killed agents in pid namespaces without rings."""
        home = self._folders[0]
        for path in self._files(_DRAFT):
            with suppress(OSError):
                if self._is_old(path, now, UNFINISHED_S):
                    path.unlink()
        found: dict[str, list[Path]] = {}
        for path in self._files(AGENT_FILE):
            space = path.stem.removeprefix("agent-")
            if path.parent == home and space != self._here and space not in inhabited:
                found.setdefault(space, []).append(path)
        for space, paths in found.items():
            with suppress(OSError):
                self._remove_agent_files(AgentFiles(home, space), paths, now)

    def _remove_agent_files(self, files: AgentFiles, paths: list[Path], now: float) -> None:
        if files.lives or not all(self._is_old(path, now) for path in paths):
            return
        lock = AgentLock.take(files, attempts=1)
        if lock is None:
            return
        for path in (files.card, files.spawn, files.log):
            with suppress(OSError):
                path.unlink()
        lock.release()

    def _files(self, names: re.Pattern[str]) -> Iterator[Path]:
        for folder in self._folders:
            with suppress(OSError):
                yield from [path for path in folder.iterdir() if names.fullmatch(path.name)]


def _remove(path: Path, inode: int) -> None:
    """Removes a ring, unless another ring has taken its name."""
    with suppress(OSError):
        if path.lstat().st_ino == inode:
            beside.remove_ring(path)


def _nobody_listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client, beside.address(path) as address:
        client.setblocking(False)
        return client.connect_ex(address) == errno.ECONNREFUSED


def _note(spaces: set[str]) -> str:
    many = f"{len(spaces)} other containers have" if len(spaces) > 1 else "another container has"
    return (
        f"{many} ranks in this folder but no agent: run `frtop agent` there, "
        "because only an agent inside a container can inspect its ranks"
    )
