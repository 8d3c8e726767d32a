"""One tracked rank: its last known state, and what changed since."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import msgspec

from frtop_probe import wire
from frtop_probe.agent.block_reader import BlockReader
from frtop_probe.agent.ring_view import RingView
from frtop_probe.procfs import exit_status, processes
from frtop_probe.procfs.exit_status import ExitStatus
from frtop_probe.ring.layout import State, StatusCell
from frtop_probe.ring.reader import GroupRow, Ring

MAX_PENDING: Final = 16
SETTLED_NS: Final = 500_000_000
"""Ops pending for less are not sent: a busy rank has other ones in each tick, and nobody could
read them."""
_CPU_STEP_NS: Final = 20_000_000
_IO_STEP: Final = 4096
_RSS_STEP: Final = 16 * 1024 * 1024
_FLUSH_TICKS: Final = 8
"""Ticks between values that are sent rarely: small changes of a process, and slow reads."""
_PENDING_TICKS: Final = 4
_CHEAP_WINDOW: Final = 512
"""Number of events to search for pending ops in every tick, at some 2 us each."""


@dataclass(slots=True)
class _Progress:
    """The group progress last sent, and the row it was made from."""

    row: GroupRow
    sent: wire.GroupProgress


@dataclass(slots=True)
class TrackedRank:
    """The agent's state of one rank.

    `lives` is false from the moment of death on; `exit_info` is set once it has been sent.
    `pidfd` is None without a living process, and on kernels without pidfds.
    """

    key: int
    ring: Ring
    lives: bool
    pidfd: int | None
    died_ns: int | None = None
    exit: ExitStatus | None = None
    oom_file: str = ""
    exit_info: wire.ExitInfo | None = None
    _view: RingView = field(init=False)
    _blocks: BlockReader | None = field(init=False)
    _identity: wire.Identity | None = None
    _status: wire.RankStatus | None = None
    _groups: dict[int, wire.Group] = field(default_factory=dict)
    _group_progress: dict[int, _Progress] = field(default_factory=dict)
    _pending: tuple[wire.Op, ...] = ()
    _pending_more: int = 0
    _process: wire.Process | None = None
    _pending_head: int = -1
    _pending_quiet: bool = False
    _pending_ticks: int = _FLUSH_TICKS
    _process_ticks: int = 0
    _side_used: int = 0
    _exception: wire.UncaughtException | None = None
    _notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._view = RingView(self.ring)
        self._blocks = BlockReader(self._view)

    @property
    def pid(self) -> int:
        return self.ring.header.pid

    @property
    def view(self) -> RingView:
        return self._view

    def update_exit(self) -> None:
        """Reads how the process ended, if the kernel says so by now."""
        if self.exit is None:
            self.exit = exit_status.read_exit_status(
                self.pidfd, self.pid, self.ring.header.start_ticks
            )

    def update(self, now_ns: int) -> wire.RankUpdate | None:
        """Reads the rank; returns what changed since the last call, None for nothing."""
        self.ring.refresh()
        fresh = wire.RankUpdate(
            key=self.key,
            identity=self._new_identity(),
            status=self._new_status(),
            groups=self._new_groups(),
            group_progress=self._new_group_progress(),
            pending=self._new_pending(now_ns),
            pending_more=self._pending_more,
            process=self._new_process(),
            exception=self._new_exception(),
            notes=self._new_notes(),
            blocks=self._blocks.fresh(now_ns) if self._blocks is not None else (),
        )
        nothing = wire.RankUpdate(key=self.key, pending_more=self._pending_more)
        return None if fresh == nothing else fresh

    def end(self, now_ns: int, oom_kills: int) -> wire.RankUpdate:
        """Reads the rank a last time; returns its full state with the exit info."""
        self.lives = False
        self.died_ns = self.died_ns or now_ns
        self.update(now_ns)
        self.update(now_ns)  # now every group is quiet: their last ops are known, too
        ended = self.exit or ExitStatus()
        stopped = self._status is not None and self._status.state == State.STOPPED
        self.exit_info = wire.ExitInfo(
            at_ns=self.died_ns,
            exit_code=ended.code,
            signal=ended.signal,
            clean=stopped and ended.signal is None and ended.code in (0, None),
            oom_kills=oom_kills,
        )
        self._process = None
        self.release()
        return self.full()

    def full(self) -> wire.RankUpdate:
        """The full state as of the last update."""
        return wire.RankUpdate(
            key=self.key,
            identity=self._identity,
            status=self._status,
            groups=tuple(self._groups.values()),
            group_progress=tuple(known.sent for known in self._group_progress.values()),
            pending=self._pending,
            pending_more=self._pending_more,
            process=self._process,
            exception=self._exception,
            exit_info=self.exit_info,
            notes=self._notes,
            blocks=self._blocks.recent() if self._blocks is not None else (),
        )

    def reread(self, now_ns: int) -> wire.RankUpdate:
        """The full state as of now; does not affect what `update` returns next."""
        if self.exit_info is not None:
            return self.full()
        copy = TrackedRank(self.key, self.ring, self.lives, None, self.died_ns, self.exit)
        copy._view = self._view
        copy._blocks = None  # callers read the histories instead
        if not self.lives:
            return copy.end(now_ns, 0)
        copy.update(now_ns)
        copy.update(now_ns)  # for the last ops of groups: see `end`
        return copy.full()

    @property
    def has_failed(self) -> bool:
        """Whether a dead rank failed, as far as is known by now."""
        if self.ended_by_exception:
            return True
        known = self.exit or ExitStatus()
        if known.signal is not None or known.code is not None:
            return known != ExitStatus(code=0)
        return self.ring.cell(StatusCell.STATE) != State.STOPPED

    @property
    def ended_by_exception(self) -> bool:
        """Whether an exception has ended the program; its process may still run."""
        self.ring.refresh()
        exception = self._view.exception()
        return exception is not None and exception.main

    @property
    def record(self) -> str:
        """Folder for the black box; "" when the job is not recorded, or that is unknown yet."""
        return self._identity.record if self._identity is not None else ""

    @property
    def job(self) -> wire.Job | None:
        """The job as of the last update."""
        return self._identity.job if self._identity is not None else None

    @property
    def progress(self) -> tuple[int, int, tuple[int, ...]]:
        """A value that changes when an op is issued or completed."""
        cell = self.ring.cell
        pending = tuple(op.sequence for op in self._pending)
        return cell(StatusCell.HEAD), cell(StatusCell.OLDEST), pending

    def last_sign_ns(self) -> int:
        """When the ring was last written to, by the times it contains."""
        cell, newest = self.ring.cell, self.ring.event(self.ring.cell(StatusCell.HEAD))
        signs = (
            cell(StatusCell.BEAT_NS),
            cell(StatusCell.EXCEPTION_NS),
            newest.issued_ns if newest else 0,
        )
        return max(signs) or self.ring.header.monotonic_ns

    def release(self) -> None:
        """Closes the pidfd; the ring stays readable."""
        if self.pidfd is not None:
            with suppress(OSError):
                os.close(self.pidfd)
            self.pidfd = None

    def _new_identity(self) -> wire.Identity | None:
        identity = self._view.identity()
        if identity == self._identity:
            return None
        self._identity = identity
        return identity

    def _new_status(self) -> wire.RankStatus | None:
        status = self._view.status()
        if status == self._status:
            return None
        self._status = status
        return status

    def _new_groups(self) -> tuple[wire.Group, ...]:
        fresh = []
        for number in self.ring.groups:
            group = self._view.group(number)
            if group is not None and group != self._groups.get(number):
                self._groups[number] = group
                fresh.append(group)
        return tuple(fresh)

    def _new_group_progress(self) -> tuple[wire.GroupProgress, ...]:
        fresh = []
        for row in self.ring.group_rows():
            known = self._group_progress.get(row.group)
            if known is None or known.row != row:
                fresh_progress = wire.GroupProgress(row.group, row.number, row.p2p, row.issued_ns)
            elif known.sent.last is None or known.sent.last.pending:
                last = self._view.last_op(row)  # quiet since the last tick
                fresh_progress = msgspec.structs.replace(known.sent, last=last)
                if known.sent.last is not None and known.sent.last.pending == last.pending:
                    continue
            else:
                continue
            self._group_progress[row.group] = _Progress(row, fresh_progress)
            fresh.append(fresh_progress)
        return tuple(fresh)

    def restarted(self) -> bool:
        """Whether the recorder has started a new ring in this file."""
        used, self._side_used = self._side_used, self.ring.cell(StatusCell.SIDE_USED)
        return self._side_used < used

    def _pending_due(self) -> bool:
        """Whether to read the pending ops in this tick.

        Read at once when the rank has stopped issuing ops, and when all ops sent are done. While
        the rank moves they change all the time, and are read rarely.
        """
        head = self.ring.cell(StatusCell.HEAD)
        quiet, self._pending_head = head == self._pending_head, head
        stopped, self._pending_quiet = quiet and not self._pending_quiet, quiet
        self._pending_ticks += 1
        cheap = head - self.ring.cell(StatusCell.OLDEST) <= _CHEAP_WINDOW
        due = (
            stopped
            or (quiet and cheap)
            or self._pending_ticks >= (_PENDING_TICKS if cheap else _FLUSH_TICKS)
            or (bool(self._pending) and not any(map(self._still_pending, self._pending)))
        )
        if due:
            self._pending_ticks = 0
        return due

    def _still_pending(self, op: wire.Op) -> bool:
        row = self.ring.event(op.sequence)
        return row is None or row.pending  # None: so old that the ring keeps it elsewhere

    def _new_pending(self, now_ns: int) -> tuple[wire.Op, ...] | None:
        if not self._pending_due() and self.lives:
            return None
        settled_ns = now_ns - SETTLED_NS if self.lives else now_ns
        rows = [r for r in self.ring.pending() if r.issued_ns <= settled_ns]
        more = max(0, len(rows) - MAX_PENDING)
        rows = rows[:MAX_PENDING]
        known = [op.sequence for op in self._pending]
        if [row.sequence for row in rows] == known and more == self._pending_more:
            return None
        self._pending = tuple(self._view.op(row) for row in rows)
        self._pending_more = more
        return self._pending

    def _new_process(self) -> wire.Process | None:
        process = processes.read_process(self.pid) if self.lives else None
        if process is None or process.state in "ZX" or process == self._process:
            return None
        self._process_ticks += 1
        known = self._process
        if known is not None and self._process_ticks < _FLUSH_TICKS and _alike(known, process):
            return None
        self._process_ticks = 0
        self._process = process
        return process

    def _new_exception(self) -> wire.UncaughtException | None:
        exception = self._view.exception()
        if exception == self._exception:
            return None
        self._exception = exception
        return exception

    def _new_notes(self) -> tuple[str, ...]:
        notes = self._view.notes()
        if notes == self._notes:
            return ()
        self._notes = notes
        return notes


def _alike(old: wire.Process, new: wire.Process) -> bool:
    """Whether the difference is too small to be sent at once."""
    return (
        (old.state, old.wchan, old.syscall, old.file, old.threads, old.children, old.parent)
        == (new.state, new.wchan, new.syscall, new.file, new.threads, new.children, new.parent)
        and new.cpu_ns - old.cpu_ns < _CPU_STEP_NS
        and new.io_bytes - old.io_bytes < _IO_STEP
        and abs(new.rss - old.rss) < _RSS_STEP
    )
