"""Tracks the ranks of one host: finds their rings, reads them, and removes them at the end."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from frtop_probe import wire
from frtop_probe.agent.outside_rank import OutsideRank
from frtop_probe.agent.ring_rank import RingRank
from frtop_probe.agent.tracked_rank import TrackedRank
from frtop_probe.outside.discovery.facts import Candidate, FoundJob
from frtop_probe.procfs import exit_status, processes
from frtop_probe.ring.header import OtherVersion, RingError
from frtop_probe.ring.layout import SUFFIX
from frtop_probe.ring.pid_namespace import PidNamespace
from frtop_probe.ring.reader import Ring

MAX_RANKS: Final = 512
MAX_ENDED: Final = 32
"""Ended ranks above this number are removed for new ones: each takes 2.1 MB of shared memory."""
MAX_NOTES: Final = 64
MAX_OUTSIDE_NOTES: Final = 16
MAX_BOX_NOTES: Final = 2
_MAX_TRIES: Final = 4
"""Ticks after which an unreadable ring is no longer just unfinished."""
_SCARCE: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))
_STATUS_WAIT_NS: Final = 2_000_000_000
"""How long a parent may take to reap before the exit info is sent without a status."""


@dataclass(frozen=True, slots=True)
class TickResult:
    """What changed in a tick."""

    ranks: tuple[wire.RankUpdate, ...]
    forgotten: tuple[int, ...]
    notes_changed: bool


@dataclass(slots=True)
class _File:
    """A ring file in a folder: tracked (`key`), or not (yet)."""

    inode: int
    key: int | None = None
    tries: int = 0
    done: bool = False


class RankTracker:
    """All ranks whose rings are in `folders`, by key."""

    def __init__(self, folders: Iterable[Path], *, guest: bool = False) -> None:
        """Reads nothing yet.

        Args:
            folders: Those of rings, the agent's own first.
            guest: Another agent has the folders: no file in them is removed.
        """
        self._guest = guest
        self._folders = tuple(folders)
        self._files: dict[Path, _File] = {}
        self._notes: dict[str, None] = {}
        self._outside_notes: tuple[str, ...] = ()
        self._box_notes: tuple[str, ...] = ()
        self._notes_changed = False
        self._forgotten: list[int] = []
        self._next_key = 1
        self._oom: dict[str, tuple[int, int]] = {}
        self._space = PidNamespace.here()
        self.other_builds: set[tuple[int, int]] = set()
        """Pid and start ticks of processes with a ring that this build does not read."""
        self.ranks: dict[int, TrackedRank] = {}
        self.closed = False
        """True when no more rings are taken: another agent has the folder."""
        self.had_rings = False
        """Whether a rank of this host was ever prepared."""
        self.shown: Container[int] = ()
        """Keys of the ranks without a recorder that somebody looks at."""
        self.on_death: Callable[[TrackedRank], None] | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self._notes, *self._outside_notes, *self._box_notes)

    @property
    def recorded(self) -> frozenset[tuple[int, int]]:
        """Pid and start ticks of the processes that have a ring."""
        rings = (rank for rank in self.ranks.values() if isinstance(rank, RingRank))
        return frozenset((rank.pid, rank.start_ticks) for rank in rings)

    @property
    def home(self) -> Path:
        """The folder with the agent's own files."""
        return self._folders[0]

    @property
    def busy(self) -> bool:
        """Whether a rank lives, or its exit info has not been sent."""
        return any(rank.exit_info is None for rank in self.ranks.values())

    def tick(self, now_ns: int) -> TickResult:
        """Finds new rings, reads all ranks, and returns what changed."""
        self._scan()
        updates = []
        for rank in list(self.ranks.values()):
            if rank.exit_info is not None:
                continue
            try:
                update = self._update(rank, now_ns)
            except Exception as error:  # noqa: BLE001 - a damaged ring must not hide the others
                self.note(f"{rank.name} is damaged ({error!r}): rank not shown")
                self._forget(rank)
                continue
            if update is not None:
                updates.append(update)
        self._sample_oom()
        forgotten, self._forgotten = tuple(self._forgotten), []
        notes_changed, self._notes_changed = self._notes_changed, False
        return TickResult(tuple(updates), forgotten, notes_changed)

    def note(self, text: str) -> None:
        """Sends operators a note about the host, once."""
        if text not in self._notes and len(self._notes) < MAX_NOTES:
            self._notes[text] = None
            self._notes_changed = True

    def set_outside_notes(self, texts: Iterable[str]) -> None:
        """Replaces what the last search for ranks without a recorder had to say."""
        notes = tuple(texts)[:MAX_OUTSIDE_NOTES]
        if notes != self._outside_notes:
            self._outside_notes = notes
            self._notes_changed = True

    def note_box(self, text: str) -> None:
        """Says where a black box lies, for the last ones: a job may end and start all day."""
        if text not in self._box_notes:
            self._box_notes = (*self._box_notes, text)[-MAX_BOX_NOTES:]
            self._notes_changed = True

    def has_living(self) -> bool:
        """Whether a rank lives, also one that appeared after the last tick."""
        self._scan()
        return any(rank.lives for rank in self.ranks.values())

    def clear(self) -> None:
        """Removes the rings of ended ranks, and closes all others."""
        for rank in list(self.ranks.values()):
            if rank.exit_info is not None and not self._guest:
                rank.remove_files()
            self._forget(rank)

    def _update(self, rank: TrackedRank, now_ns: int) -> wire.RankUpdate | None:
        rank.check()
        if (
            rank.lives
            and rank.pidfd is None
            and not exit_status.is_alive(rank.pid, rank.start_ticks)
        ):
            self._handle_death(rank)
        if rank.lives:
            if rank.restarted():
                self._forget(rank)  # tracked again in the next tick
                self._files = {p: one for p, one in self._files.items() if one.key != rank.key}
                return None
            return rank.update(now_ns)
        if rank.died_ns is None:  # had ended before it was found
            rank.died_ns = rank.last_sign_ns()
            return rank.end(now_ns, 0)
        rank.update_exit()
        if rank.exit is None and now_ns - rank.died_ns < _STATUS_WAIT_NS:
            return rank.update(now_ns)
        self._unwatch(rank)
        return rank.end(now_ns, self._oom_kills(rank.oom_file))

    def _handle_death(self, rank: TrackedRank) -> None:
        """Called by the event loop at the moment of a death."""
        self._unwatch(rank)
        rank.lives = False
        rank.died_ns = time.monotonic_ns()
        rank.update_exit()
        if self.on_death is not None:
            self.on_death(rank)

    def _unwatch(self, rank: TrackedRank) -> None:
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
                            self._check_file(Path(entry.path), entry.inode(), entry)
            except FileNotFoundError:
                continue  # cleared; it is soon made again
            except OSError as error:
                self.note(f"{folder} cannot be read: {error.strerror}")

    def _check_file(self, path: Path, inode: int, entry: os.DirEntry[str]) -> None:
        known = self._files.get(path)
        if known is not None and known.inode != inode:  # the recorder has started again
            if known.key is not None and known.key in self.ranks:
                self._forget(self.ranks[known.key])
            known = None
        if known is None:
            known = self._files[path] = _File(inode)
        if known.done or known.key is not None:
            return
        if not entry.is_file(follow_symlinks=False):
            known.done = True
            return
        ring = self._open(path, known)
        if ring is None:
            return
        known.done = True
        if not self._is_ours(ring):
            ring.close()
        elif self._make_room(RingRank):
            known.key = self._add(ring)
        else:
            ring.close()
            known.done = False
            self.note(f"more than {MAX_RANKS} ranks: {path.name} and others are not shown")

    def _open(self, path: Path, known: _File) -> Ring | None:
        try:
            return Ring(path)
        except (RingError, OSError) as error:
            if isinstance(error, OSError) and error.errno in _SCARCE:
                return None  # a shortage of ours, not the ring's fault: try again later
            known.tries += 1
            if isinstance(error, OtherVersion):
                known.tries = _MAX_TRIES
                self._take_other_build(path)
            if known.tries >= _MAX_TRIES:
                known.done = True
                self.note(f"a ring cannot be read: {error}")
            return None

    def _take_other_build(self, path: Path) -> None:
        """Notes by the name of its ring whose recorder is of another build."""
        numbers = path.name.removesuffix(SUFFIX).split("-")
        if len(numbers) == 3 and all(map(str.isdecimal, numbers)):
            pid, start_ticks, namespace = map(int, numbers)
            if namespace == self._space.inode:
                self.other_builds.add((pid, start_ticks))

    def _is_ours(self, ring: Ring) -> bool:
        return PidNamespace(ring.header.boot, ring.header.pid_namespace) == self._space

    def _add(self, ring: Ring) -> int:
        pid, start_ticks = ring.header.pid, ring.header.start_ticks
        outside = self._find_outside(pid, start_ticks)
        if outside is not None:  # the recorder was started late
            self._forget(outside)
        pidfd = exit_status.open_pidfd(pid)
        lives = exit_status.is_alive(pid, start_ticks)
        rank = RingRank(self._take_key(), ring, lives=lives, pidfd=pidfd)
        self.ranks[rank.key] = rank
        self.had_rings = True
        if rank.lives:
            self._watch(rank)
        else:
            rank.exit = exit_status.read_zombie(pid, start_ticks)
            rank.release()
        return rank.key

    def add_outside(self, candidate: Candidate, job: FoundJob) -> OutsideRank | None:
        """Tracks a rank without a recorder.

        None if it has ended, has a ring by now or is tracked already, or there is no room.
        """
        pid, start_ticks = candidate.pid, candidate.start_ticks
        known = (pid, start_ticks) in self.recorded or self._find_outside(pid, start_ticks)
        if self.closed or known or not self._make_room(OutsideRank):
            return None
        pidfd = exit_status.open_pidfd(pid)
        rank = OutsideRank(self._take_key(), candidate, job, pidfd)
        if not exit_status.is_alive(pid, start_ticks):
            rank.release()
            return None
        self.ranks[rank.key] = rank
        self._watch(rank)
        return rank

    def forget(self, rank: OutsideRank) -> None:
        """Stops to track a rank that lives on."""
        self._forget(rank)

    def _find_outside(self, pid: int, start_ticks: int) -> OutsideRank | None:
        for rank in self.ranks.values():
            if isinstance(rank, OutsideRank) and (rank.pid, rank.start_ticks) == (pid, start_ticks):
                return rank
        return None

    def _take_key(self) -> int:
        self._next_key += 1
        return self._next_key - 1

    def _watch(self, rank: TrackedRank) -> None:
        """Notices the rank's death at once, and counts OOM kills around it."""
        if rank.pidfd is not None:
            asyncio.get_running_loop().add_reader(rank.pidfd, self._handle_death, rank)
        file = exit_status.oom_counter_file(rank.pid)
        if file is not None:
            rank.oom_file = str(file)
            self._oom.setdefault(rank.oom_file, (count := self._oom_count(rank.oom_file), count))

    def _make_room(self, kind: type[TrackedRank]) -> bool:
        """Whether one more rank can be tracked; removes the oldest ended one if necessary.

        A rank of one kind does not displace the last ended ones of the other, nor one that somebody
        sees while there are others.
        """
        ended = [rank for rank in self.ranks.values() if rank.exit_info is not None]
        alike = [rank for rank in ended if isinstance(rank, kind)]
        full = len(self.ranks) >= MAX_RANKS
        if len(alike) >= MAX_ENDED or (full and ended):
            among = alike or ended
            oldest = next((rank for rank in among if rank.key not in self.shown), among[0])
            if not self._guest:
                oldest.remove_files()
            self._forget(oldest)
        return len(self.ranks) < MAX_RANKS

    def _forget(self, rank: TrackedRank) -> None:
        self._unwatch(rank)
        rank.release()
        rank.close()
        self.ranks.pop(rank.key, None)
        self._forgotten.append(rank.key)
        if not any(other.oom_file == rank.oom_file for other in self.ranks.values()):
            self._oom.pop(rank.oom_file, None)

    def _sample_oom(self) -> None:
        for file, (_, newest) in self._oom.items():
            self._oom[file] = (newest, self._oom_count(file))

    def _oom_kills(self, file: str) -> int:
        """The rise of the counter between the tick before last and now."""
        return max(0, self._oom_count(file) - self._oom[file][0]) if file in self._oom else 0

    def _oom_count(self, file: str) -> int:
        return exit_status.parse_oom_kills(processes.read_file(file) or "")
