"""One adopted rank: what is known of it, and what of that is new in this tick."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import msgspec

from frtop_probe import wire
from frtop_probe.agent.blocks import Blocks
from frtop_probe.agent.ringview import RingView
from frtop_probe.eyes import endings, proc
from frtop_probe.eyes.endings import Exit
from frtop_probe.ring.layout import State, StatusCell
from frtop_probe.ring.reader import GroupRow, Ring

MAX_PENDING: Final = 16
SETTLED_NS: Final = 500_000_000
"""Ops that have been pending for less are not told: a busy rank has other ones each tick,
and nobody could read them."""
_CPU_STEP_NS: Final = 20_000_000
_IO_STEP: Final = 4096
_RSS_STEP: Final = 16 * 1024 * 1024
_FLUSH_TICKS: Final = 8
"""Ticks between what is told seldom: small changes of a process, and dear reads."""
_PENDING_TICKS: Final = 4
_CHEAP_WINDOW: Final = 512
"""Events among which pending ops are looked for in every tick; some 2 us each."""


@dataclass(slots=True)
class _Front:
    """What was last told of a group, and of which row."""

    row: GroupRow
    told: wire.GroupProgress


@dataclass(slots=True)
class Rank:
    """The agent's memory of one rank.

    `lives` is false from the moment of death on; `exit_info` is there once it has been told.
    `pidfd` is None without a living process, and on kernels without pidfds.
    """

    key: int
    ring: Ring
    lives: bool
    pidfd: int | None
    died_ns: int | None = None
    exit: Exit | None = None
    oom_file: str = ""
    exit_info: wire.ExitInfo | None = None
    _view: RingView = field(init=False)
    _blocks: Blocks | None = field(init=False)
    _identity: wire.Identity | None = None
    _present: wire.RankStatus | None = None
    _groups: dict[int, wire.Group] = field(default_factory=dict)
    _fronts: dict[int, _Front] = field(default_factory=dict)
    _pending: tuple[wire.Op, ...] = ()
    _pending_more: int = 0
    _process: wire.Process | None = None
    _pending_head: int = -1
    _pending_quiet: bool = False
    _pending_ticks: int = _FLUSH_TICKS
    _process_ticks: int = 0
    _side_used: int = 0
    _raised: wire.UncaughtException | None = None
    _notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._view = RingView(self.ring)
        self._blocks = Blocks(self._view)

    @property
    def pid(self) -> int:
        return self.ring.header.pid

    @property
    def view(self) -> RingView:
        return self._view

    def learn_exit(self) -> None:
        """Takes what can be known by now of how the process ended."""
        if self.exit is None:
            self.exit = endings.learn(self.pidfd, self.pid, self.ring.header.start_ticks)

    def update(self, now_ns: int) -> wire.RankUpdate | None:
        """Reads the rank; gives what changed since the last call, None for nothing."""
        self.ring.refresh()
        fresh = wire.RankUpdate(
            key=self.key,
            identity=self._new_identity(),
            status=self._new_present(),
            groups=self._new_groups(),
            group_progress=self._new_fronts(),
            pending=self._new_pending(now_ns),
            pending_more=self._pending_more,
            process=self._new_process(),
            exception=self._new_raised(),
            notes=self._new_notes(),
            blocks=self._blocks.fresh(now_ns) if self._blocks is not None else (),
        )
        nothing = wire.RankUpdate(key=self.key, pending_more=self._pending_more)
        return None if fresh == nothing else fresh

    def end(self, now_ns: int, oom_kills: int) -> wire.RankUpdate:
        """The rank's last update: its ring is read once more, then it is only remembered."""
        self.lives = False
        self.died_ns = self.died_ns or now_ns
        self.update(now_ns)
        self.update(now_ns)  # by now every group is quiet: their last ops are known, too
        ended = self.exit or Exit()
        stopped = self._present is not None and self._present.state == State.STOPPED
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
        """Everything as of the last update."""
        return wire.RankUpdate(
            key=self.key,
            identity=self._identity,
            status=self._present,
            groups=tuple(self._groups.values()),
            group_progress=tuple(front.told for front in self._fronts.values()),
            pending=self._pending,
            pending_more=self._pending_more,
            process=self._process,
            exception=self._raised,
            exit_info=self.exit_info,
            notes=self._notes,
            blocks=self._blocks.last() if self._blocks is not None else (),
        )

    def reread(self, now_ns: int) -> wire.RankUpdate:
        """Everything as of now; what was told, and is to be told, stays as it is."""
        if self.exit_info is not None:
            return self.full()
        apart = Rank(self.key, self.ring, self.lives, None, self.died_ns, self.exit)
        apart._view = self._view
        apart._blocks = None  # whoever rereads, reads the histories
        if not self.lives:
            return apart.end(now_ns, 0)
        apart.update(now_ns)
        apart.update(now_ns)  # for the last ops of groups: see `end`
        return apart.full()

    @property
    def ended_badly(self) -> bool:
        """Whether a dead rank did not end as programs should, as far as is known by now."""
        if self.raised_to_end:
            return True
        known = self.exit or Exit()
        if known.signal is not None or known.code is not None:
            return known != Exit(code=0)
        return self.ring.cell(StatusCell.STATE) != State.STOPPED

    @property
    def raised_to_end(self) -> bool:
        """Whether an exception has ended the program; its process may still be there."""
        self.ring.refresh()
        raised = self._view.raised()
        return raised is not None and raised.main

    @property
    def record(self) -> str:
        """Folder for the black box; "" when nobody wants one, or it is not known yet."""
        return self._identity.record if self._identity is not None else ""

    @property
    def job(self) -> wire.Job | None:
        """The job as of the last update."""
        return self._identity.job if self._identity is not None else None

    @property
    def progress(self) -> tuple[int, int, tuple[int, ...]]:
        """Differs when an op was issued or completed."""
        cell = self.ring.cell
        pending = tuple(op.sequence for op in self._pending)
        return cell(StatusCell.HEAD), cell(StatusCell.OLDEST), pending

    def last_sign_ns(self) -> int:
        """When the ring was last written to, as far as it says so."""
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

    def _new_present(self) -> wire.RankStatus | None:
        present = self._view.present()
        if present == self._present:
            return None
        self._present = present
        return present

    def _new_groups(self) -> tuple[wire.Group, ...]:
        fresh = []
        for number in self.ring.groups:
            group = self._view.group(number)
            if group is not None and group != self._groups.get(number):
                self._groups[number] = group
                fresh.append(group)
        return tuple(fresh)

    def _new_fronts(self) -> tuple[wire.GroupProgress, ...]:
        fresh = []
        for row in self.ring.group_rows():
            known = self._fronts.get(row.group)
            if known is None or known.row != row:
                front = wire.GroupProgress(row.group, row.number, row.p2p, row.issued_ns)
            elif known.told.last is None or known.told.last.pending:
                last = self._view.last_op(row)  # quiet since the last tick
                front = msgspec.structs.replace(known.told, last=last)
                if known.told.last is not None and known.told.last.pending == last.pending:
                    continue
            else:
                continue
            self._fronts[row.group] = _Front(row, front)
            fresh.append(front)
        return tuple(fresh)

    def restarted(self) -> bool:
        """Whether the recorder has made a new ring in the place of this one."""
        used, self._side_used = self._side_used, self.ring.cell(StatusCell.SIDE_USED)
        return self._side_used < used

    def _pending_due(self) -> bool:
        """Whether to look for pending ops in this tick.

        At once when the rank has stopped issuing, and when all that was told is done: that
        is when they matter. While it moves they change all the time, and are told seldom.
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
        return row is None or row.pending  # None: so old that it is kept elsewhere

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
        process = proc.process(self.pid) if self.lives else None
        if process is None or process.state in "ZX" or process == self._process:
            return None
        self._process_ticks += 1
        known = self._process
        if known is not None and self._process_ticks < _FLUSH_TICKS and _alike(known, process):
            return None
        self._process_ticks = 0
        self._process = process
        return process

    def _new_raised(self) -> wire.UncaughtException | None:
        raised = self._view.raised()
        if raised == self._raised:
            return None
        self._raised = raised
        return raised

    def _new_notes(self) -> tuple[str, ...]:
        notes = self._view.notes()
        if notes == self._notes:
            return ()
        self._notes = notes
        return notes


def _alike(old: wire.Process, new: wire.Process) -> bool:
    """Whether the difference is too small to be told at once."""
    return (
        (old.state, old.wchan, old.syscall, old.file, old.threads, old.children, old.parent)
        == (new.state, new.wchan, new.syscall, new.file, new.threads, new.children, new.parent)
        and new.cpu_ns - old.cpu_ns < _CPU_STEP_NS
        and new.io_bytes - old.io_bytes < _IO_STEP
        and abs(new.rss - old.rss) < _RSS_STEP
    )
