"""Follows every op of some ranks: when it is issued, and when it is over."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from msgspec import structs

from frtop_probe import wire
from frtop_tui.connect.history_follower import MOST, OVERLAP, FollowedRank, HistoryFollower
from frtop_tui.connect.request_tracker import RequestTracker
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.files.histories import ops_of
from frtop_tui.job.groups import identifier

FORGET_NS: Final = 2_000_000_000
"""An op beyond our reach that has not been pending for this long is over."""
MOST_WAITING: Final = 100_000
"""Ops of all ranks that wait for `take`: some 300 bytes each."""


@dataclass(frozen=True, slots=True)
class FollowedOps:
    """News of one rank: ops that were issued, ops that are over, and how many we missed."""

    view: JudgedRank
    issued: tuple[wire.Op, ...] = ()
    ended: tuple[wire.Op, ...] = ()
    lost: int = 0
    text: str = ""  # why we missed some, or why there are none


class OpOutlet:
    """Between the source's thread and whoever takes the ops: bounded, nobody waits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[FollowedOps] = []
        self._count = self._lost = 0

    def put(self, ops: FollowedOps) -> None:
        size = len(ops.issued) + len(ops.ended)
        with self._lock:
            if self._count + size > MOST_WAITING:
                self._lost += size
            else:
                self._waiting.append(ops)
                self._count += size

    def take(self) -> tuple[list[FollowedOps], int]:
        """The ops since the last call, and how many events did not fit."""
        with self._lock:
            taken, lost = self._waiting, self._lost
            self._waiting, self._count, self._lost = [], 0, 0
        return taken, lost


@dataclass(slots=True)
class _RankOps(FollowedRank):
    """What was seen of one rank's ops."""

    last: int = -(2**63)  # sequence number of the newest op seen; some are negative
    oldest: int = 0  # of the oldest one in the last response
    seen: frozenset[int] = frozenset()
    open: dict[int, wire.Op] = field(default_factory=dict)
    absent_ns: dict[int, int] = field(default_factory=dict)
    """Open ops beyond our reach: when each was first absent from the pending ones."""
    numbers: dict[tuple[int, bool], int] = field(default_factory=dict)
    """By `_counted`, the newest of each."""
    groups: Mapping[int, wire.Group] = field(default_factory=dict)
    """By the numbers that `open` uses."""
    text: str = ""


class OpFollower(HistoryFollower[_RankOps]):
    """Belongs to the source's thread. `follow` switches it on."""

    REMEMBER_NS = 600_000_000_000

    def __init__(self, tracker: RequestTracker, outlet: OpOutlet) -> None:
        super().__init__(tracker)
        self._outlet = outlet
        self._wanted: frozenset[int] | None = frozenset()

    def follow(self, ranks: Iterable[int] | None) -> None:
        """Follows these ranks from now on; None: all ranks of the shown job."""
        self._wanted = frozenset(ranks) if ranks is not None else None

    def update(self, frame: Frame | None, now: int) -> None:
        """Requests what is new."""
        if frame is None or not (self._wanted is None or self._wanted):
            return
        self.take_turns(self._views(frame), now)
        for view in self._views(frame):
            self._end_absent(view, self._ranks[self.key(view)], now)

    def _views(self, frame: Frame) -> list[JudgedRank]:
        if self._wanted is None:
            return list(frame.ranks.values())
        return [frame.ranks[rank] for rank in self._wanted if rank in frame.ranks]

    def begin(self, view: JudgedRank) -> _RankOps:  # noqa: ARG002
        return _RankOps()

    def of_new_agent(self, view: JudgedRank, known: _RankOps) -> _RankOps | None:
        """Ops of a Flight Recorder keep their sequence, but not the numbers of their groups."""
        if known.last >= 0:
            return self.begin(view)
        if known.groups and not view.groups and view.identity.c10d_readable:
            return None  # it has not read them yet
        now = {identifier(group): number for number, group in view.groups.items()}
        numbers = {
            number: now[identifier(group)]
            for number, group in known.groups.items()
            if identifier(group) in now
        }
        known.open = {
            sequence: structs.replace(op, group=numbers.get(op.group, 0))
            for sequence, op in known.open.items()
        }
        known.groups, known.again = view.groups, True
        return known

    def how_far_back(self, view: JudgedRank, known: _RankOps, *, quiet: bool) -> int | None:
        if quiet and (view.exit_info is not None or not known.open):
            return None
        return known.last - min(known.open, default=known.last)

    def failed(self, view: JudgedRank, known: _RankOps, text: str) -> None:
        if text != known.text:
            known.text = text
            self._outlet.put(FollowedOps(view, text=text))

    def take_history(
        self,
        view: JudgedRank,
        known: _RankOps,
        history: wire.History,
        limit: int,
        asked_ns: int,  # noqa: ARG002
    ) -> bool:
        ops = sorted(ops_of(history)[-MOST:], key=lambda op: op.sequence)
        if not ops:
            return True
        step = 2 if known.last < 0 else 1
        reaches_back = ops[0].sequence <= known.last + step or not known.begun
        if not reaches_back and limit < MOST and len(ops) * 2 > limit:
            return False
        self._take(view, known, ops)
        return True

    def _take(self, view: JudgedRank, known: _RankOps, ops: list[wire.Op]) -> None:
        """Reports ops not seen before, and open ones that are over."""
        issued, ended, lost = [], [], 0
        for op in ops:
            if op.sequence in known.open:
                if not op.pending:
                    ended.append(op)
                    del known.open[op.sequence]
                else:
                    known.open[op.sequence] = op
                continue
            is_new = op.sequence > known.last or (
                op.sequence > known.oldest and op.sequence not in known.seen
            )
            if (counted := _counted(op)) is not None:
                which, number = counted
                newest = known.numbers.get(which, number)
                if known.begun and is_new and newest < number - 1:
                    lost += number - 1 - newest
                known.numbers[which] = max(number, newest)
            if not is_new or (not known.begun and not op.pending):
                continue  # ops that were over before we began do not belong to this stream
            issued.append(op)
            if op.pending:
                known.open[op.sequence] = op
            else:
                ended.append(op)
        known.groups = view.groups
        there = view.groups.keys() | {op.group for op in ops}
        known.numbers = {
            key: last for key, last in known.numbers.items() if key[0] in there or key[0] < 0
        }
        known.last = max(known.last, ops[-1].sequence)
        known.oldest, known.seen = ops[0].sequence, frozenset(op.sequence for op in ops)
        known.begun = True
        if issued or ended or lost:
            text = "ops were overwritten before frtop could request them" if lost else ""
            self._outlet.put(FollowedOps(view, tuple(issued), tuple(ended), lost, text))

    def _end_absent(self, view: JudgedRank, known: _RankOps, now: int) -> None:
        """Ends ops that responses no longer reach and that are no longer pending."""
        far = [sequence for sequence in known.open if known.last - sequence > MOST - OVERLAP]
        pending = {op.sequence for op in view.pending}
        ended = []
        for sequence in far:
            if sequence in pending or view.pending_more:
                known.absent_ns.pop(sequence, None)
            elif now - known.absent_ns.setdefault(sequence, now) > FORGET_NS:
                ended.append(known.open.pop(sequence))
                del known.absent_ns[sequence]
        if ended:
            self._outlet.put(FollowedOps(view, ended=tuple(ended)))


def _counted(op: wire.Op) -> tuple[tuple[int, bool], int] | None:
    """Returns what counts ops without a gap, and its count at this op; None if nothing does.

    It is the op's group, for collectives and for messages. In a Flight Recorder it is the ring: the
    ids of gloo's are even sequences, of NCCL's odd ones, also where groups cannot be read.
    """
    if op.sequence < 0:
        ids, ring = divmod(op.sequence, 2)
        return (~ring, False), ids
    return ((op.group, op.p2p), op.number) if op.group and op.number and not op.pseudo else None
