"""Ranks with a recorder: their last known state and changes; and ranks with an unreadable ring."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import structs

from frtop_probe import wire
from frtop_probe.agent.checksum_blocks import BlockReader
from frtop_probe.agent.reported_series import ReportedSeries
from frtop_probe.agent.ring_view import RingView
from frtop_probe.agent.tracked_rank import FLUSH_TICKS, TrackedRank
from frtop_probe.proc.exit_status import ExitStatus
from frtop_probe.ring.layout import MAX_DESTROYED, Event, Flag, State, StatusCell
from frtop_probe.ring.reader import EventRow, GroupRow, Ring

MAX_PENDING: Final = 16
SETTLED_NS: Final = 500_000_000
"""Ops pending for less than this are not sent: a busy rank has other ones in each tick, and
nobody could read them."""
QUIET_NS: Final = 1_000_000_000
"""A rank's messages are sent only after it has issued nothing for this long: waits that lead to
it are no older."""
_PENDING_TICKS: Final = 4
_CHEAP_WINDOW: Final = 512
"""Events to search for pending ops in every tick, at about 2 us each."""


@dataclass(slots=True)
class _Progress:
    """The group progress last sent, and the row it was made from."""

    row: GroupRow
    sent: wire.GroupProgress


class RingRank(TrackedRank):
    """A rank with a recorder, tracked by its ring."""

    def __init__(self, key: int, ring: Ring, *, lives: bool, pidfd: int | None) -> None:
        header = ring.header
        super().__init__(key, header.pid, header.start_ticks, lives=lives, pidfd=pidfd)
        self.ring = ring
        self.view = RingView(ring)
        self._blocks: BlockReader | None = BlockReader(self.view)
        self._status: wire.RankStatus | None = None
        self._groups: dict[int, wire.Group] = {}
        self._group_progress: dict[int, _Progress] = {}
        self._gone: dict[int, tuple[wire.Group, _Progress | None]] = {}
        """The last groups that the ring has dropped: others may still wait in them."""
        self._pending: tuple[wire.Op, ...] = ()
        self._pending_rows: list[EventRow] = []
        self._pending_more = 0
        self._pending_head = -1
        self._pending_quiet = False
        self._pending_ticks = FLUSH_TICKS
        self._exception: wire.UncaughtException | None = None
        self._notes: tuple[str, ...] = ()
        self._transports: tuple[wire.Transport, ...] | None = None
        self._messages: tuple[wire.Messages, ...] = ()
        self._messages_at = (-1, 0)
        self._reported = ReportedSeries(ring)
        self._reported_ticks = FLUSH_TICKS

    @property
    def name(self) -> str:
        return self.ring.path.name

    def status(self) -> wire.RankStatus:
        return self.view.status()

    def recent_ops(self, limit: int) -> tuple[tuple[wire.Op, ...], int]:
        self.ring.refresh()
        return self.view.ops(limit) if limit else ((), 0)

    def recent_marks(self, since_ns: int, limit: int) -> tuple[wire.Mark, ...]:
        return self.view.marks(since_ns)[-limit:]

    def close(self) -> None:
        self.ring.close()

    def remove_files(self) -> None:
        self.ring.remove()

    def update(self, now_ns: int) -> wire.RankUpdate | None:
        """Reads the rank; returns what changed since the last call, None if nothing did."""
        self.ring.refresh()
        progress = self._new_group_progress(now_ns)  # before groups are dropped
        fresh = wire.RankUpdate(
            key=self.key,
            identity=self._news("_identity", self.view.identity()),
            status=self._news("_status", self.view.status()),
            groups=self._new_groups(),
            group_progress=progress,
            pending=self._new_pending(now_ns),
            pending_more=self._pending_more,
            process=self._new_process(),
            exception=self._news("_exception", self.view.exception()),
            notes=self._news("_notes", self.view.notes()) or (),
            blocks=self._blocks.fresh(now_ns) if self._blocks is not None else (),
            transports=self._news("_transports", self.view.transports()),
            gauges=self._news("_gauges_sent", self.gauges),
            messages=self._new_messages(now_ns),
            reported=self._new_reported(),
        )
        nothing = wire.RankUpdate(key=self.key, pending_more=self._pending_more)
        return None if fresh == nothing else fresh

    def _read_last(self, now_ns: int) -> bool:
        self.update(now_ns)
        self.update(now_ns)  # now every group is quiet, so its last op is also known
        return self._status is not None and self._status.state == State.STOPPED

    def full(self) -> wire.RankUpdate:
        """The full state at the last update."""
        return wire.RankUpdate(
            key=self.key,
            identity=self._identity,
            status=self._status,
            groups=(*(group for group, _ in self._gone.values()), *self._groups.values()),
            group_progress=tuple(
                known.sent
                for known in (
                    *(one for _, one in self._gone.values()),
                    *self._group_progress.values(),
                )
                if known is not None
            ),
            pending=self._pending,
            pending_more=self._pending_more,
            process=self._process,
            exception=self._exception,
            exit_info=self.exit_info,
            notes=self._notes,
            blocks=self._blocks.recent() if self._blocks is not None else (),
            transports=self._transports,
            gauges=self.gauges,
            messages=self._messages,
            reported=self._reported.full(),
        )

    def reread(self, now_ns: int) -> wire.RankUpdate:
        """The full state now; does not affect what `update` returns next."""
        if self.exit_info is not None:
            return self.full()
        copy = RingRank(self.key, self.ring, lives=self.lives, pidfd=None)
        copy.died_ns, copy.exit, copy.view = self.died_ns, self.exit, self.view
        copy.gauges = self.gauges
        copy._blocks = None  # callers read the histories instead
        copy._messages = self._messages
        copy._gone = self._gone
        if not self.lives:
            return copy.end(now_ns, 0)
        copy.update(now_ns)
        copy.update(now_ns)  # for the last ops of groups: see `end`
        return copy.full()

    @property
    def has_failed(self) -> bool:
        """Whether a dead rank failed, as far as known."""
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
        exception = self.view.exception()
        return exception is not None and exception.main

    @property
    def progress(self) -> tuple[int, int, int, tuple[int, ...]]:
        """A value that changes when an op is issued or completed, or a step ends."""
        cell = self.ring.cell
        pending = tuple(op.sequence for op in self._pending)
        return cell(StatusCell.HEAD), cell(StatusCell.OLDEST), cell(StatusCell.STEP), pending

    @property
    def history_stamp(self) -> tuple[object, int, int]:
        """Like `progress`, with fetches and phases, which do not count as progress."""
        cell = self.ring.cell
        return self.progress, cell(StatusCell.MARKS), cell(StatusCell.FETCH_END_NS)

    def last_sign_ns(self) -> int:
        """When the ring was last written, by the times it contains."""
        cell, newest = self.ring.cell, self.ring.event(self.ring.cell(StatusCell.HEAD))
        signs = (
            cell(StatusCell.HEARTBEAT_NS),
            cell(StatusCell.EXCEPTION_NS),
            newest.issued_ns if newest else 0,
        )
        return max(signs) or self.ring.header.monotonic_ns

    def _new_groups(self) -> tuple[wire.Group, ...]:
        fresh = []
        if dropped := self._groups.keys() - self.ring.groups.keys():
            for number in sorted(dropped):
                gone = structs.replace(self._groups.pop(number), gone=True)
                fresh.append(gone)
                self._gone[number] = gone, self._group_progress.pop(number, None)
            for number in list(self._gone)[:-MAX_DESTROYED]:
                del self._gone[number]
            self.view.forget(dropped)
            if self._blocks is not None:
                self._blocks.forget(dropped)
        for number in self.ring.groups:
            group = self.view.group(number)
            if group is not None and group != self._groups.get(number):
                self._groups[number] = group
                fresh.append(group)
        return tuple(fresh)

    def _new_group_progress(self, now_ns: int) -> tuple[wire.GroupProgress, ...]:
        fresh = []
        for row in self.view.group_rows():
            if self.ring.is_dropped(row.group) and row.group not in self._groups:
                continue
            known = self._group_progress.get(row.group)
            if known is None or known.row != row:
                last_op = self.ring.last_op(row)
                issued_ns = last_op.issued_ns if last_op is not None else now_ns
                fresh_progress = wire.GroupProgress(
                    row.group, row.number, row.p2p, issued_ns, None,
                    row.enqueued, row.completed, row.advanced_ns, bool(row.watched),
                )  # fmt: skip
            elif known.sent.last is None or known.sent.last.pending:
                last = self.view.last_op(row)  # quiet since the last tick
                fresh_progress = msgspec.structs.replace(known.sent, last=last)
                if known.sent.last is not None and _stage(known.sent.last) == _stage(last):
                    continue
            else:
                continue
            self._group_progress[row.group] = _Progress(row, fresh_progress)
            fresh.append(fresh_progress)
        return tuple(fresh)

    def _pending_due(self) -> bool:
        """Whether to read the pending ops in this tick.

        They are read as soon as the rank stops issuing ops, and as soon as all ops sent are done.
        While the rank moves, they change all the time, and are read rarely.
        """
        head = self.ring.cell(StatusCell.HEAD)
        quiet, self._pending_head = head == self._pending_head, head
        stopped, self._pending_quiet = quiet and not self._pending_quiet, quiet
        self._pending_ticks += 1
        cheap = head - self.ring.cell(StatusCell.OLDEST) <= _CHEAP_WINDOW
        due = (
            stopped
            or (quiet and cheap)
            or self._pending_ticks >= (_PENDING_TICKS if cheap else FLUSH_TICKS)
            or (bool(self._pending) and not any(map(self._still_pending, self._pending)))
        )
        if due:
            self._pending_ticks = 0
        return due

    def _still_pending(self, op: wire.Op) -> bool:
        row = self.ring.event(op.sequence)
        return row is None or row.pending  # None: old, so the ring keeps it elsewhere

    def _new_pending(self, now_ns: int) -> tuple[wire.Op, ...] | None:
        if not self._pending_due() and self.lives:
            return None
        settled_ns = now_ns - SETTLED_NS if self.lives else now_ns
        settled = [r for r in self.ring.pending() if r.issued_ns <= settled_ns]
        rows = _most_telling(_telling(settled))
        more = len(settled) - len(rows)
        if rows == self._pending_rows and more == self._pending_more:
            return None
        self._pending = tuple(self.view.op(row) for row in rows)
        self._pending_rows, self._pending_more = rows, more
        return self._pending

    def _new_reported(self) -> tuple[wire.ReportedValues, ...]:
        self._reported_ticks += 1
        if self.lives and self._reported_ticks < FLUSH_TICKS:
            return ()
        self._reported_ticks = 0
        return self._reported.fresh()

    def _new_messages(self, now_ns: int) -> tuple[wire.Messages, ...] | None:
        head, (known, since_ns) = self.ring.cell(StatusCell.HEAD), self._messages_at
        if head != known:
            self._messages_at = head, now_ns
            if self.lives:
                return None
        elif not since_ns or now_ns - since_ns < QUIET_NS:
            return None
        found = self._blocks.messages() if self._blocks is not None else None
        if found is None:
            return None
        self._messages_at = head, 0
        if found == self._messages:
            return None
        self._messages = found
        return found


def _telling(pending: Sequence[EventRow]) -> list[EventRow]:
    """Leaves out ops queued on a device behind others of their group.

    A host is hundreds of ops ahead of its device. The first op of a group shows where the device
    is, the last one where the host is. Ops that a thread waits for also stay.
    """
    queued = [row for row in pending if Flag.ENQUEUED in row.flags and row.wait_ns <= 0]
    ends: dict[int, list[int]] = {}
    for row in queued:
        ends.setdefault(row.group, []).append(row.sequence)
    shown = {sequence for queue in ends.values() for sequence in (queue[0], queue[-1])}
    left_out = {row.sequence for row in queued} - shown
    return [row for row in pending if row.sequence not in left_out]


def _most_telling(pending: list[EventRow]) -> list[EventRow]:
    """Returns at most `MAX_PENDING`: first ops in which threads wait, then the oldest collectives.

    Then come the newest sends and receives: gloo reports the end of a message only to a waiter, and
    pipeline schedules wait for their messages at the end of a step.
    """
    if len(pending) <= MAX_PENDING:
        return pending

    def order(row: EventRow) -> tuple[int, int]:
        if row.wait_ns > 0 or Flag.SYNC in row.flags or row.event is Event.PSEUDO:
            return 0, row.sequence
        return (2, -row.sequence) if Flag.P2P in row.flags else (1, row.sequence)

    return sorted(sorted(pending, key=order)[:MAX_PENDING], key=lambda row: row.sequence)


def _stage(op: wire.Op) -> tuple[bool, bool]:
    """Returns what may change in an op while it is its group's last."""
    return op.pending, op.enqueued


class UnreadableRank(TrackedRank):
    """Shows only the process, and says why. The ring is not read again."""

    def __init__(self, key: int, rank: TrackedRank, reason: str, pidfd: int | None) -> None:
        super().__init__(key, rank.pid, rank.start_ticks, lives=rank.lives, pidfd=pidfd)
        self.died_ns, self.exit, self.oom_file = rank.died_ns, rank.exit, rank.oom_file
        self._ring = rank.ring if isinstance(rank, RingRank) else None
        self._name = rank.name
        self._reason = reason
        if reason.startswith(wire.OF_RECORDER):
            self.recorder_note = reason
        self._identity = _identity_of(rank)
        self._is_sent = False

    @property
    def name(self) -> str:
        return self._name

    @property
    def has_ring(self) -> bool:
        return self._ring is not None

    def update(self, now_ns: int) -> wire.RankUpdate | None:  # noqa: ARG002 - for all ranks
        process, gauges = self._new_process(), self._news("_gauges_sent", self.gauges)
        if not self._is_sent:
            self._is_sent = True
            return self.full()
        fresh = wire.RankUpdate(self.key, process=process, gauges=gauges)
        return None if fresh == wire.RankUpdate(self.key) else fresh

    def full(self) -> wire.RankUpdate:
        return wire.RankUpdate(
            key=self.key,
            identity=self._identity,
            process=self._process,
            exit_info=self.exit_info,
            notes=(self._reason,),
            gauges=self.gauges,
        )

    def last_sign_ns(self) -> int:
        return self._ring.header.monotonic_ns if self._ring is not None else time.monotonic_ns()

    @property
    def ops_note(self) -> str:
        return self._reason

    @property
    def has_failed(self) -> bool:
        ended = self.exit
        return ended is not None and (ended.signal is not None or ended.code not in (0, None))

    def remove_files(self) -> None:
        if self._ring is not None:
            self._ring.remove()


def _identity_of(rank: TrackedRank) -> wire.Identity:
    """The identity last sent, else the identity of the process."""
    known = rank.identity
    with suppress(wire.WireError):
        if known is not None and wire.size_of_rank(known):
            return structs.replace(known, prepared=False, c10d_readable=False)
    job = wire.Job("", 0, 0)
    return wire.Identity(
        rank.pid, rank.start_ticks, -1, -1, job, prepared=False, c10d_readable=False
    )
