"""The ranks of one host and folder: found, followed, ended, and at last cleared away."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from frtop_probe import wire
from frtop_probe.agent.rank import Rank
from frtop_probe.eyes import endings, proc
from frtop_probe.ring.layout import SUFFIX
from frtop_probe.ring.pid_namespace import PidNamespace
from frtop_probe.ring.reader import Ring, RingError

MAX_RANKS: Final = 512
MAX_ENDED: Final = 32
"""Ended ranks beyond these make room for new ones: each keeps 1.5 MB of shared memory."""
_PATIENCE: Final = 4
"""Ticks after which a ring that cannot be read is no longer just unfinished."""
_SCARCE: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))
_STATUS_WAIT_NS: Final = 2_000_000_000
"""How long a parent may take to reap before the ending is told without a status."""


@dataclass(frozen=True, slots=True)
class News:
    """What a tick brought. `notes` are all notes about the host, if one is new."""

    ranks: tuple[wire.RankUpdate, ...]
    forgotten: tuple[int, ...]
    notes: tuple[str, ...]


@dataclass(slots=True)
class _File:
    """A ring file met in a folder: adopted (`key`), or not (yet)."""

    inode: int
    key: int | None = None
    tries: int = 0
    settled: bool = False


class Roster:
    """All ranks whose rings lie in `folders`, by key."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = tuple(folders)
        self._files: dict[Path, _File] = {}
        self._notes: dict[str, None] = {}
        self._new_notes = False
        self._forgotten: list[int] = []
        self._next_key = 1
        self._oom: dict[str, tuple[int, int]] = {}
        self._space = PidNamespace.here()
        self.ranks: dict[int, Rank] = {}
        self.closed = False
        """No more rings are adopted: they are another agent's, who has our folder now."""
        self.on_death: Callable[[Rank], None] | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(self._notes)

    @property
    def home(self) -> Path:
        """The folder in which the agent lives."""
        return self._folders[0]

    @property
    def busy(self) -> bool:
        """Whether a rank lives, or its ending has not been told yet."""
        return any(rank.exit_info is None for rank in self.ranks.values())

    def tick(self, now_ns: int) -> News:
        """Looks for rings, reads all living ranks, and tells what is new."""
        self._scan()
        updates = []
        for rank in list(self.ranks.values()):
            if rank.exit_info is not None:
                continue
            try:
                update = self._follow(rank, now_ns)
            except Exception as error:  # noqa: BLE001 - one damaged ring must not silence the host
                self.note(f"{rank.ring.path.name} is damaged ({error!r}): rank not shown")
                self._forget(rank)
                continue
            if update is not None:
                updates.append(update)
        self._sample_oom()
        forgotten, self._forgotten = tuple(self._forgotten), []
        notes, self._new_notes = (self.notes if self._new_notes else ()), False
        return News(tuple(updates), forgotten, notes)

    def note(self, text: str) -> None:
        """Tells operators something about the host, once."""
        if text not in self._notes and len(self._notes) < 64:
            self._notes[text] = None
            self._new_notes = True

    def look_for_living(self) -> bool:
        """Whether there is a living rank, also one that appeared after the last tick."""
        self._scan()
        return any(rank.lives for rank in self.ranks.values())

    def clear(self) -> None:
        """Removes the rings of ended ranks, and lets go of all others."""
        for rank in list(self.ranks.values()):
            if rank.exit_info is not None:
                rank.ring.remove()
            self._forget(rank)

    def _follow(self, rank: Rank, now_ns: int) -> wire.RankUpdate | None:
        rank.ring.check()
        birth = rank.ring.header
        if rank.lives and rank.pidfd is None and not endings.lives(rank.pid, birth.start_ticks):
            self._died(rank)
        if rank.lives:
            if rank.restarted():
                self._files.pop(rank.ring.path, None)  # adopted anew in the next tick
                self._forget(rank)
                return None
            return rank.update(now_ns)
        if rank.died_ns is None:  # was over when we found it
            rank.died_ns = rank.last_sign_ns()
            return rank.end(now_ns, 0)
        rank.learn_exit()
        if rank.exit is None and now_ns - rank.died_ns < _STATUS_WAIT_NS:
            return rank.update(now_ns)
        self._unwatch(rank)
        return rank.end(now_ns, self._oom_kills(rank.oom_file))

    def _died(self, rank: Rank) -> None:
        """Called by the event loop at the moment of a death."""
        self._unwatch(rank)
        rank.lives = False
        rank.died_ns = time.monotonic_ns()
        rank.learn_exit()
        if self.on_death is not None:
            self.on_death(rank)

    def _unwatch(self, rank: Rank) -> None:
        if rank.pidfd is not None:
            asyncio.get_running_loop().remove_reader(rank.pidfd)

    def _scan(self) -> None:
        if self.closed:
            return
        for folder in self._folders:
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        if entry.name.endswith(SUFFIX):
                            self._meet(Path(entry.path), entry.inode(), entry)
            except FileNotFoundError:
                continue  # cleared, and soon made anew
            except OSError as error:
                self.note(f"{folder} cannot be read: {error.strerror}")

    def _meet(self, path: Path, inode: int, entry: os.DirEntry[str]) -> None:
        known = self._files.get(path)
        if known is not None and known.inode != inode:  # the recorder started anew
            if known.key is not None and known.key in self.ranks:
                self._forget(self.ranks[known.key])
            known = None
        if known is None:
            known = self._files[path] = _File(inode)
        if known.settled or known.key is not None:
            return
        if not entry.is_file(follow_symlinks=False):
            known.settled = True
            return
        ring = self._open(path, known)
        if ring is None:
            return
        known.settled = True
        if not self._ours(ring):
            ring.close()
        elif self._room():
            known.key = self._adopt(ring)
        else:
            ring.close()
            known.settled = False  # there may be room later
            self.note(f"more than {MAX_RANKS} ranks: {path.name} and others are not shown")

    def _open(self, path: Path, known: _File) -> Ring | None:
        try:
            return Ring(path)
        except (RingError, OSError) as error:
            if isinstance(error, OSError) and error.errno in _SCARCE:
                return None  # our own want, not the ring's fault: there may be some later
            known.tries += 1
            if known.tries >= _PATIENCE:
                known.settled = True
                self.note(f"a ring cannot be read: {error}")
            return None

    def _ours(self, ring: Ring) -> bool:
        return PidNamespace(ring.header.boot, ring.header.pid_namespace) == self._space

    def _adopt(self, ring: Ring) -> int:
        pid, start_ticks = ring.header.pid, ring.header.start_ticks
        pidfd = endings.open_pidfd(pid)
        rank = Rank(self._next_key, ring, endings.lives(pid, start_ticks), pidfd)
        self._next_key += 1
        self.ranks[rank.key] = rank
        if not rank.lives:
            rank.exit = endings.of_zombie(pid, start_ticks)
            rank.release()
            return rank.key
        if pidfd is not None:
            asyncio.get_running_loop().add_reader(pidfd, self._died, rank)
        file = endings.oom_file(pid)
        if file is not None:
            rank.oom_file = str(file)
            self._oom.setdefault(rank.oom_file, (count := self._oom_count(rank.oom_file), count))
        return rank.key

    def _room(self) -> bool:
        """Whether there is room for one more; the oldest ended rank goes if need be."""
        ended = [rank for rank in self.ranks.values() if rank.exit_info is not None]
        if len(self.ranks) < MAX_RANKS and len(ended) < MAX_ENDED:
            return True
        if ended:
            ended[0].ring.remove()
            self._forget(ended[0])
        return len(self.ranks) < MAX_RANKS

    def _forget(self, rank: Rank) -> None:
        self._unwatch(rank)
        rank.release()
        with suppress(BufferError):
            rank.ring.close()
        self.ranks.pop(rank.key, None)
        self._forgotten.append(rank.key)

    def _sample_oom(self) -> None:
        for file, (_, newest) in self._oom.items():
            self._oom[file] = (newest, self._oom_count(file))

    def _oom_kills(self, file: str) -> int:
        """By how much the counter rose between the tick before last and now."""
        return max(0, self._oom_count(file) - self._oom[file][0]) if file in self._oom else 0

    def _oom_count(self, file: str) -> int:
        return endings.parse_oom(proc.read(file) or "")
