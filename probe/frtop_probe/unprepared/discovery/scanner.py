"""Finds the jobs of a user by scanning /proc repeatedly, at little cost.

The first scan reads every process once. Later scans list /proc, and reread a process only if it
is new, has changed, or may become a rank.
"""

from __future__ import annotations

import os
import pwd
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from frtop_probe.proc.child_process import AS_USER
from frtop_probe.proc.pid_stat import Stat
from frtop_probe.unprepared.discovery import proc_reader
from frtop_probe.unprepared.discovery.claims import NAMES
from frtop_probe.unprepared.discovery.command_line import read_title
from frtop_probe.unprepared.discovery.facts import (
    DATA_WORKER,
    Discovery,
    FoundJob,
    LeftAlone,
    ProcessFacts,
)
from frtop_probe.unprepared.discovery.jobs import ProcessName, find_jobs
from frtop_probe.unprepared.discovery.proc_reader import BlockingReader

RunTimeEnvironReader = Callable[[int], Mapping[str, str] | None]
"""Reads a process's current environment from its memory; None if it cannot."""
FIRST_AGAIN_S: Final = 1.0
LAST_AGAIN_S: Final = 60.0
"""A process that may become a rank is read again after 1 s, 2 s, 4 s, ..., 60 s."""
SETTLED_AGAIN: Final = 200
"""Unwatched processes that each scan checks: a shell may have become a rank by exec."""
_MAX_REASONS: Final = 8


@dataclass(slots=True)
class _Entry:
    """A process that was read.

    Attributes:
        inode: inode of its folder in /proc: another process with the same pid has a different one.
        stat: its last stat.
        own: it belongs to the user, and is not a kernel thread.
        is_rank_of_other: it looks like a rank of another user.
        is_watched: every scan checks it, because it may be part of a job.
        wait_s: the pause after its next read.
        again_at: when to read it again, by the monotonic clock.
    """

    inode: int
    stat: Stat
    facts: ProcessFacts
    own: bool
    is_kernel_thread: bool = False
    is_rank_of_other: bool = False
    is_watched: bool = False
    wait_s: float = FIRST_AGAIN_S
    again_at: float = 0.0

    @property
    def is_final(self) -> bool:
        """Whether another read would show nothing new."""
        facts = self.facts
        if facts.unread or not self.is_watched:
            return not facts.unread
        return facts.comm == DATA_WORKER or (facts.has_group_threads and "RANK" in facts.variables)


class Scanner:
    """Finds the jobs of one user on this host.

    Args:
        uid: the user; by default the user of this process.
        blocking: reads cmdline, environ and maps; by default, in this thread.
        run_time_environ: reads the environment from memory, for ranks whose launcher or script
            sets it at run time; by default, it is not read.
        proc: where /proc is.
    """

    def __init__(
        self,
        uid: int | None = None,
        blocking: BlockingReader | None = None,
        run_time_environ: RunTimeEnvironReader | None = None,
        proc: str = proc_reader.PROC,
    ) -> None:
        self._uid = os.getuid() if uid is None else uid
        self._proc = proc
        self._blocking = blocking or (
            lambda pid, names: proc_reader.read_blocking(pid, names, proc)
        )
        self._run_time_environ = run_time_environ
        self._entries: dict[int, _Entry] = {}
        self._settled_from = 0
        self._found: tuple[Collection[ProcessName], tuple[FoundJob, ...]] | None = None

    def scan(
        self, recorded: Collection[ProcessName] = frozenset(), now: float | None = None
    ) -> Discovery:
        """Reads what has changed and returns all jobs; `recorded` processes have a recorder."""
        now = time.monotonic() if now is None else now
        try:
            with os.scandir(self._proc) as listed:
                inodes = {int(e.name): e.inode() for e in listed if e.name.isdecimal()}
        except OSError as error:
            return Discovery(reasons=(f"{self._proc}: {error.strerror}",))
        changed = False
        for pid in [pid for pid in self._entries if pid not in inodes]:
            changed |= self._entries.pop(pid).own
        for pid, inode in self._due(inodes):
            changed |= self._update(pid, inode, now)
        if changed or self._found is None or self._found[0] != recorded:
            self._found = (recorded, find_jobs(self._table(), recorded))
        return Discovery(self._found[1], self._left_alone(), self._reasons())

    def _due(self, inodes: Mapping[int, int]) -> list[tuple[int, int]]:
        """Returns the pids and inodes of the processes whose stat this scan reads.

        If a pid was reused, the listing of /proc shows another inode for it.
        """
        due, settled = [], []
        for pid, inode in inodes.items():
            entry = self._entries.get(pid)
            if entry is None or entry.inode != inode or entry.is_watched:
                due.append((pid, inode))
            elif not entry.is_kernel_thread:
                settled.append((pid, inode))
        if len(settled) > SETTLED_AGAIN:
            first = self._settled_from % len(settled)
            self._settled_from = first + SETTLED_AGAIN
            settled = (settled + settled)[first : first + SETTLED_AGAIN]
        return due + settled

    def _update(self, pid: int, inode: int, now: float) -> bool:
        """Reads a process as far as needed; returns whether the table changed."""
        folder = f"{self._proc}/{pid}"
        stat = proc_reader.read_stat(folder)
        entry = self._entries.get(pid)
        if stat is None:  # gone, or a zombie
            self._entries.pop(pid, None)
            return entry is not None and entry.own
        if entry is None or entry.stat.start_ticks != stat.start_ticks:
            return self._add(pid, inode, stat, now)
        entry.inode = inode
        before, entry.stat = entry.stat, stat
        same_program = (before.name, before.threads) == (stat.name, stat.threads)
        if not entry.own:
            return self._update_other(entry, now, same_program=same_program)
        if not (entry.is_final and stat.name == before.name):
            if not same_program:
                entry.wait_s, entry.again_at = FIRST_AGAIN_S, now
            if now >= entry.again_at and (entry.is_watched or not same_program):
                return self._read_again(entry, now)
        if before.parent != stat.parent:
            entry.facts = replace(entry.facts, parent=stat.parent)
        return before.parent != stat.parent

    def _update_other(self, entry: _Entry, now: float, *, same_program: bool) -> bool:
        """Rereads a process of another user if it may have become the user's, or a rank.

        A launcher starts as root, becomes the user, and then becomes the program. The threads that
        mark a rank get their names some time after they start.
        """
        settled = entry.is_kernel_thread or entry.is_rank_of_other or now < entry.again_at
        if same_program and settled:
            return False
        pid, wait_s = entry.facts.pid, FIRST_AGAIN_S
        if same_program:
            wait_s = min(2 * entry.wait_s, LAST_AGAIN_S)
        changed = self._add(pid, entry.inode, entry.stat, now)
        added = self._entries.get(pid)
        if added is not None and not added.own:
            added.wait_s, added.again_at = wait_s, now + wait_s
        return changed

    def _add(self, pid: int, inode: int, stat: Stat, now: float) -> bool:
        is_kernel_thread = stat.parent == 2 or (pid == 2 and stat.parent == 0)
        uid = 0 if is_kernel_thread else self._owner(pid)
        if uid is None:
            self._entries.pop(pid, None)
            return False
        facts = ProcessFacts(
            pid, stat.start_ticks, stat.parent, uid, stat.name, stat.session, stat.threads
        )
        own = uid == self._uid and not is_kernel_thread
        self._entries[pid] = entry = _Entry(inode, stat, facts, own, is_kernel_thread)
        if own:
            return self._read(entry, now)
        entry.is_rank_of_other = not is_kernel_thread and proc_reader.is_rank_of_other(
            pid, stat, self._proc
        )
        return False

    def _read_again(self, entry: _Entry, now: float) -> bool:
        pid = entry.facts.pid
        if self._owner(pid) != self._uid:  # it changed its user, or is gone
            self._add(pid, entry.inode, entry.stat, now)
            return True
        return self._read(entry, now)

    def _read(self, entry: _Entry, now: float) -> bool:
        pid, before = entry.facts.pid, entry.facts
        entry.again_at = now + entry.wait_s
        entry.wait_s = min(2 * entry.wait_s, LAST_AGAIN_S)
        facts = proc_reader.read_facts(pid, entry.stat, self._uid, self._blocking, self._proc)
        if facts is None:
            del self._entries[pid]
            return True
        entry.facts = replace(facts, run_time_environ=self._environ_now(facts))
        entry.is_watched = facts.is_python or facts.has_torch or bool(facts.argv)
        return entry.facts != before or not before.program

    def _environ_now(self, facts: ProcessFacts) -> Mapping[str, str]:
        may_be_rank = facts.has_torch or read_title(facts.argv, facts.comm) is not None
        if self._run_time_environ is None or not may_be_rank or facts.comm == DATA_WORKER:
            return {}
        if "RANK" in facts.environ:
            return {}
        try:
            found = self._run_time_environ(facts.pid)
        except OSError:
            found = None
        return {name: value for name, value in (found or {}).items() if name in NAMES}

    def _owner(self, pid: int) -> int | None:
        folder = f"{self._proc}/{pid}"
        try:
            uid = os.stat(folder).st_uid  # noqa: PTH116 - hot
        except OSError:
            return None
        # Root owns the files of a process that changed its user. A process with ids of several
        # users belongs to none of them alone.
        return uid if uid not in (0, self._uid) else proc_reader.only_uid(folder)

    def _table(self) -> dict[int, ProcessFacts]:
        """Returns all processes that may be part of a job, and their ancestors."""
        table: dict[int, ProcessFacts] = {}
        for first in self._entries.values():
            entry: _Entry | None = first if first.is_watched else None
            while entry is not None and entry.facts.pid not in table:
                table[entry.facts.pid] = entry.facts
                entry = self._entries.get(entry.facts.parent)
        return table

    def _left_alone(self) -> tuple[LeftAlone, ...]:
        others = [e for e in self._entries.values() if not e.own and not e.is_kernel_thread]
        processes = Counter(entry.facts.uid for entry in others)
        ranks = Counter(entry.facts.uid for entry in others if entry.is_rank_of_other)
        return tuple(
            LeftAlone(uid, _user_name(uid), processes[uid], ranks[uid]) for uid in sorted(ranks)
        )

    def _reasons(self) -> tuple[str, ...]:
        """Why processes could not be read, most frequent reason first."""
        # The process that reads for root (`pipe.become_user`) is closed to its user, and so to
        # itself.
        ours = {os.getpid(), os.getppid()} if AS_USER in os.environ else ()
        found = Counter(
            reason
            for entry in self._entries.values()
            if entry.own and (entry.facts.is_python or entry.facts.has_torch)
            if entry.facts.pid not in ours and entry.facts.parent not in ours
            for reason in entry.facts.unread
        )
        return tuple(
            _sentence(*reason.partition(": ")[::2], count)
            for reason, count in found.most_common(_MAX_REASONS)
        )


def _sentence(files: str, why: str, count: int) -> str:
    return f"frtop could not read {files} of {count} process{'' if count == 1 else 'es'}: {why}"


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OSError):
        return str(uid)
