"""Tracks the ranks of one host: finds their rings, reads them, and removes them at the end."""

from __future__ import annotations

import asyncio
import errno
import math
import os
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from frtop_probe import wire
from frtop_probe.agent.interfaces import log
from frtop_probe.agent.ring_rank import RingRank, UnreadableRank
from frtop_probe.agent.tracked_rank import TrackedRank
from frtop_probe.agent.unprepared.unprepared_rank import UnpreparedRank
from frtop_probe.proc import exit_status, processes
from frtop_probe.proc.kernel_files import named_numbers, printable, read_text
from frtop_probe.proc.output_places import output_places
from frtop_probe.ring.folder import agent_lives
from frtop_probe.ring.header import OtherVersion, RingError
from frtop_probe.ring.layout import SUFFIX
from frtop_probe.ring.pid_namespace import PidNamespace
from frtop_probe.ring.reader import Ring
from frtop_probe.unprepared.discovery.facts import Candidate, FoundJob

MAX_RANKS: Final = 512
MAX_ENDED: Final = 32
"""Most ended ranks kept: each takes 2.4 MB of shared memory."""
MAX_NOTES: Final = 64
MAX_UNPREPARED_NOTES: Final = 16
MAX_BOX_NOTES: Final = 2
MAX_NOTE: Final = 1024
MAX_FILES: Final = 4096
"""Most rings read per folder."""
OTHER_BUILD: Final = (
    f"{wire.OF_RECORDER}it comes from another build of frtop, so this one cannot read its records;"
    " look with that build, or restart the job with this one"
)
DAMAGED: Final = f"{wire.OF_RECORDER}its ring cannot be read"
_MAX_TRIES: Final = 4
"""Ticks after which an unreadable ring no longer counts as unfinished."""
_SCARCE: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))
LASTING_S: Final = 30.0
"""How long a rank counts as shown. Every 5 s, a screen reports what it shows."""
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
    """A ring file in a folder; `key` is set if it is tracked."""

    inode: int
    key: int | None = None
    tries: int = 0
    done: bool = False


class RankTracker:
    """All ranks whose rings are in `folders`, by key."""

    def __init__(self, folders: Iterable[Path], *, guest: bool = False) -> None:
        """`folders` contain the rings; the agent's own folder comes first.

        A `guest` removes no files in them: they belong to another agent.
        """
        self.guest = guest
        self._folders = tuple(folders)
        self._files: dict[str, _File] = {}
        self._notes: dict[str, None] = {}
        self._unprepared_notes: tuple[str, ...] = ()
        self._box_notes: tuple[str, ...] = ()
        self._notes_changed = False
        self._forgotten: list[int] = []
        self._next_key = 1
        self._bytes = 0
        self._oom: dict[str, tuple[int, int]] = {}
        self._space = PidNamespace.here()
        self.unread: dict[tuple[int, int], str] = {}
        """Why rings cannot be read, by pid and start ticks of the process."""
        self.ranks: dict[int, TrackedRank] = {}
        self.closed = False
        """True when no more rings are read, because another agent has the folder."""
        self.none_found = False
        """Whether the last search found no rank but those with a ring."""
        self.searching = False
        """Whether the first search, or the first looks at each rank that it found, are not over."""
        self.had_rings = False
        """Whether this host ever had a prepared rank."""
        self.shown = ShownRanks()
        self.on_death: Callable[[TrackedRank], None] | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self._notes, *self._unprepared_notes, *self._box_notes)

    @property
    def recorded(self) -> frozenset[tuple[int, int]]:
        """Pid and start ticks of the processes with a ring."""
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

    @property
    def largest_world(self) -> int:
        """Ranks of the largest job that has a rank here."""
        return max((one.job.world_size for one in self.ranks.values() if one.job), default=0)

    def tick(self, now_ns: int) -> TickResult:
        """Finds new rings, reads all ranks, and returns what changed."""
        self._scan()
        self._bytes = 0
        updates = []
        for rank in list(self.ranks.values()):
            if rank.exit_info is not None:
                continue
            update = self._guarded(rank, lambda one: self._update(one, now_ns))
            if update is not None:
                updates.append(update)
        self._sample_oom()
        forgotten, self._forgotten = tuple(self._forgotten), []
        notes_changed, self._notes_changed = self._notes_changed, False
        return TickResult(tuple(updates), forgotten, notes_changed)

    def full(self) -> tuple[wire.RankUpdate, ...]:
        """The full state of all ranks at the last tick."""
        self._bytes = 0
        ranks = list(self.ranks.values())
        updates = (self._guarded(rank, lambda one: one.full()) for rank in ranks)
        return tuple(update for update in updates if update is not None)

    def add_folders(self, folders: Iterable[Path]) -> None:
        """Also reads rings in these folders, for instance after the user has logged in."""
        self._folders += tuple(one for one in folders if one not in self._folders)

    def note(self, text: str) -> bool:
        """Sends operators a note about the host, once; returns whether it is new."""
        text = text[:MAX_NOTE].encode("utf-8", "replace").decode()
        if text in self._notes or len(self._notes) >= MAX_NOTES:
            return False
        self._notes[text] = None
        self._notes_changed = True
        return True

    def note_fault(self, text: str) -> None:
        """Sends a note, and writes it to the agent's log."""
        if self.note(text):
            log(text)

    def set_unprepared_notes(self, texts: Iterable[str]) -> None:
        """Replaces the notes from the last search for ranks without a recorder."""
        notes = tuple(texts)[:MAX_UNPREPARED_NOTES]
        if notes != self._unprepared_notes:
            self._unprepared_notes = notes
            self._notes_changed = True

    def note_box(self, text: str) -> None:
        """Notes where a black box is; keeps only the last boxes."""
        if text not in self._box_notes:
            self._box_notes = (*self._box_notes, text)[-MAX_BOX_NOTES:]
            self._notes_changed = True

    def has_living(self) -> bool:
        """Whether a rank lives, including ranks that appeared after the last tick."""
        self._scan()
        return any(rank.lives for rank in self.ranks.values())

    def clear(self) -> None:
        """Removes the rings of ended ranks, and closes all others."""
        for rank in list(self.ranks.values()):
            if rank.exit_info is not None and not self.guest:
                rank.remove_files()
            self._forget(rank)

    def _guarded(
        self, rank: TrackedRank, read: Callable[[TrackedRank], wire.RankUpdate | None]
    ) -> wire.RankUpdate | None:
        """Reads a rank. A rank that cannot be read or sent must not hide the others."""
        try:
            update = read(rank)
            if update is None:
                return None
            size = wire.size_of_rank(update)
            if self._bytes + size > wire.MAX_MESSAGE // 2:
                raise wire.WireError("the updates of this host's ranks are too large")
        except Exception as error:  # noqa: BLE001 - what is read may hold anything
            if _is_shortage(error):
                return None  # the next tick tries again
            instead = self._give_up(rank, _reason_of(error))
            if instead is None:
                return None
            update, size = instead.full(), 0
        self._bytes += size
        return update

    def _give_up(self, rank: TrackedRank, reason: str) -> UnreadableRank | None:
        """Replaces a rank by one that shows only its process; None if that failed before."""
        self.note_fault(f"{rank.name} cannot be read: {reason}")
        self._forget(rank)
        if isinstance(rank, UnreadableRank):
            return None
        why = f"not readable: {reason}"
        if isinstance(rank, RingRank):
            why = self.unread[rank.pid, rank.start_ticks] = f"{DAMAGED} ({reason})"
        pidfd = exit_status.open_pidfd(rank.pid) if rank.lives else None
        instead = UnreadableRank(self._take_key(), rank, why, pidfd)
        for file in self._files.values():
            if file.key == rank.key:
                file.key = instead.key
        self.ranks[instead.key] = instead
        if instead.lives:
            self._watch(instead)
        return instead

    def _update(self, rank: TrackedRank, now_ns: int) -> wire.RankUpdate | None:
        if (
            rank.lives
            and rank.pidfd is None
            and not exit_status.is_alive(rank.pid, rank.start_ticks)
        ):
            self._handle_death(rank)
        if rank.lives:
            return rank.update(now_ns)
        if rank.died_ns is None:  # ended before it was found
            rank.died_ns = rank.last_sign_ns()
            return rank.end(now_ns, 0)
        rank.update_exit()
        if rank.exit is None and now_ns - rank.died_ns < _STATUS_WAIT_NS:
            return rank.update(now_ns)
        self._unwatch(rank)
        return rank.end(now_ns, self._oom_kills(rank.oom_file))

    def _handle_death(self, rank: TrackedRank) -> None:
        """The event loop calls this at the moment of a death."""
        self._unwatch(rank)
        rank.lives = False
        rank.died_ns = time.monotonic_ns()
        rank.update_exit()
        if self.on_death is not None:
            try:
                self.on_death(rank)
            except Exception as error:  # noqa: BLE001 - its ring may hold anything
                self.note_fault(f"the end of {rank.name} is not saved: {_reason_of(error)}")

    def _unwatch(self, rank: TrackedRank) -> None:
        if rank.pidfd is not None:
            asyncio.get_running_loop().remove_reader(rank.pidfd)

    def _scan(self) -> None:
        if self.closed:
            return
        seen: set[str] = set()
        for folder in self._folders:
            if folder != self.home and not self.guest and agent_lives(folder):
                continue  # that agent has the rings there
            try:
                with os.scandir(folder) as entries:
                    rings = (entry for entry in entries if entry.name.endswith(SUFFIX))
                    for entry in islice(rings, MAX_FILES):
                        seen.add(entry.path)
                        try:
                            self._check_file(entry)
                        except Exception as error:  # noqa: BLE001 - likewise for the file
                            self._files[entry.path].done = True
                            self.note_fault(f"{entry.name} cannot be read: {_reason_of(error)}")
            except FileNotFoundError:
                continue  # cleared; soon recreated
            except OSError as error:
                self.note(f"{folder} cannot be read: {error.strerror}")
        if len(self._files) > 2 * len(seen) + MAX_RANKS:
            self._files = {
                path: file
                for path, file in self._files.items()
                if path in seen or file.key in self.ranks
            }
        if len(self.unread) > MAX_FILES:
            self.unread.clear()

    def _check_file(self, entry: os.DirEntry[str]) -> None:
        path, inode = entry.path, entry.inode()
        known = self._files.get(path)
        if known is not None and known.inode != inode:  # the recorder restarted
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
        ring = self._open(Path(path), known)
        if ring is None:
            return
        known.done = True
        if not self._is_ours(ring):
            ring.close()
        elif self._make_room((RingRank, UnreadableRank)):
            known.key = self._add(ring)
        else:
            ring.close()
            known.done = False
            self.note(f"more than {MAX_RANKS} ranks: {entry.name} and others are not shown")

    def _open(self, path: Path, known: _File) -> Ring | None:
        try:
            return Ring(path)
        except Exception as error:  # noqa: BLE001 - a file may hold anything
            if _is_shortage(error):
                return None  # not the ring's fault: try again later
            known.tries += 1
            other_build = isinstance(error, OtherVersion)
            if known.tries >= _MAX_TRIES or other_build:
                known.done = True
                reason = _reason_of(error)
                self.note_fault(f"a ring cannot be read: {reason}")
                self._take_unread(path, OTHER_BUILD if other_build else f"{DAMAGED} ({reason})")
            return None

    def _take_unread(self, path: Path, reason: str) -> None:
        """Remembers the process of an unreadable ring, taken from the file name."""
        numbers = path.name.removesuffix(SUFFIX).split("-")
        if len(numbers) == 3 and all(map(str.isdecimal, numbers)):
            pid, start_ticks, namespace = map(int, numbers)
            if namespace == self._space.inode:
                self.unread[pid, start_ticks] = reason

    def _is_ours(self, ring: Ring) -> bool:
        """Whether a ring belongs to a process of this pid namespace and user.

        The header may name any process: nobody may use it to make us look at others.
        """
        pid, start_ticks = ring.header.pid, ring.header.start_ticks
        if PidNamespace(ring.header.boot, ring.header.pid_namespace) != self._space:
            return False
        if exit_status.is_alive(pid, start_ticks) and processes.is_others(pid):
            self.note(
                f"{ring.path.name} names process {pid}, which belongs to another user: ignored"
            )
            return False
        return True

    def _add(self, ring: Ring) -> int:
        pid, start_ticks = ring.header.pid, ring.header.start_ticks
        self._forget_instead(pid, start_ticks)  # the recorder started late, or again
        self.unread.pop((pid, start_ticks), None)
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

    def add_unprepared(self, candidate: Candidate, job: FoundJob) -> UnpreparedRank | None:
        """Tracks a rank without a recorder.

        None if it has ended, has a ring, is already tracked, or there is no room.
        """
        pid, start_ticks = candidate.pid, candidate.start_ticks
        known = self._find(pid, start_ticks)
        if self.closed or (known is not None and not self._has_better(known)):
            return None
        if not self._make_room((UnpreparedRank,)):
            return None
        pidfd = exit_status.open_pidfd(pid)
        rank = UnpreparedRank(self._take_key(), candidate, job, pidfd)
        if not exit_status.is_alive(pid, start_ticks):
            rank.release()
            return None
        self._forget_instead(pid, start_ticks)
        rank.recorder_note = self.unread.get((pid, start_ticks), "")
        self.ranks[rank.key] = rank
        self._watch(rank)
        return rank

    def _has_better(self, rank: TrackedRank) -> bool:
        """Whether the process can be read from outside although its ring cannot."""
        unread = (rank.pid, rank.start_ticks) in self.unread
        return unread and isinstance(rank, UnreadableRank) and rank.has_ring

    def forget(self, rank: UnpreparedRank) -> None:
        """Stops tracking a living rank."""
        self._forget(rank)

    def _find(self, pid: int, start_ticks: int) -> TrackedRank | None:
        for rank in self.ranks.values():
            if (rank.pid, rank.start_ticks) == (pid, start_ticks):
                return rank
        return None

    def _forget_instead(self, pid: int, start_ticks: int) -> None:
        """Forgets a rank whose process can now be read better."""
        rank = self._find(pid, start_ticks)
        if rank is not None and not isinstance(rank, RingRank):
            self._forget(rank)

    def _take_key(self) -> int:
        self._next_key += 1
        return self._next_key - 1

    def _watch(self, rank: TrackedRank) -> None:
        """Notices the rank's death at once, and what only a living process shows."""
        rank.output_places = output_places(rank.pid)
        if rank.pidfd is not None:
            asyncio.get_running_loop().add_reader(rank.pidfd, self._handle_death, rank)
        file = exit_status.oom_counter_file(rank.pid)
        if file is not None:
            rank.oom_file = str(file)
            self._oom.setdefault(rank.oom_file, (count := self._oom_count(rank.oom_file), count))

    def _make_room(self, kind: tuple[type[TrackedRank], ...]) -> bool:
        """Whether one more rank can be tracked; removes the oldest ended rank if necessary.

        Ranks with and without a recorder do not displace each other's last ended ranks. Ranks that
        somebody looks at are removed last.
        """
        ended = [rank for rank in self.ranks.values() if rank.exit_info is not None]
        alike = [rank for rank in ended if isinstance(rank, kind)]
        full = len(self.ranks) >= MAX_RANKS
        if len(alike) >= MAX_ENDED or (full and ended):
            among = alike or ended
            oldest = next((rank for rank in among if rank.key not in self.shown), among[0])
            if not self.guest:
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
        """How much the counter has risen since the tick before last."""
        return max(0, self._oom_count(file) - self._oom[file][0]) if file in self._oom else 0

    def _oom_count(self, file: str) -> int:
        return named_numbers(read_text(file)).get("oom_kill", 0)


class ShownRanks:
    """The ranks that somebody wants to see in detail: shown on a screen, or requested.

    An agent follows all ranks of its host. Expensive data, such as Flight Recorder rings, is kept
    only for these, for `LASTING_S` after an operator last named them.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[int, float] = {}
        self._all_until = -math.inf

    def note(self, keys: Collection[int] | None, known: Collection[int]) -> None:
        """Notes the ranks that an operator shows or requests: `keys`, or all `known` if None."""
        now = self._clock()
        if keys is None:
            self._all_until = now + LASTING_S
            return
        self._until = {key: end for key, end in self._until.items() if end > now}
        self._until |= dict.fromkeys(set(keys).intersection(known), now + LASTING_S)

    def __contains__(self, key: object) -> bool:
        now = self._clock()
        known = self._until.get(key, -math.inf) if isinstance(key, int) else -math.inf
        return now < max(self._all_until, known)


def _is_shortage(error: Exception) -> bool:
    """Whether this process lacks memory or descriptors; this is not the rank's fault."""
    return isinstance(error, MemoryError) or getattr(error, "errno", None) in _SCARCE


def _reason_of(error: Exception) -> str:
    """Formats an error as one line: it may quote the content of a file."""
    text = str(error) if isinstance(error, (RingError, wire.WireError)) else repr(error)
    return printable(text)
