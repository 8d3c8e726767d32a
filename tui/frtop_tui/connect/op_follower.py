"""Follows the ops of some ranks, out of the histories that agents give on request.

An agent publishes how far ranks are, not every op: at a thousand ops a second nobody would
look at them. Whoever wants them asks, half-secondly, for as many of the newest ops of a rank
as it has issued since, and some more: what overlaps shows that nothing was missed. A host has
one such request at a time, so a slow one is asked less often.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from frtop_probe import wire
from frtop_tui.connect.request_tracker import RequestTracker
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.files.histories import ops_of

INTERVAL_NS: Final = 500_000_000
OVERLAP: Final = 64
"""Ops that are asked for beyond those that were issued: steps take slots of a ring, too."""
MOST: Final = 8192
"""Ops in one response. A rank that issues more in the time between two loses some."""
FORGET_NS: Final = 2_000_000_000
"""An op that is no longer in reach and not pending for so long is over."""
MOST_WAITING: Final = 100_000
"""Ops that wait to be taken, of all ranks: some 300 bytes each."""


@dataclass(frozen=True, slots=True)
class FollowedOps:
    """What is new of one rank: ops that were issued, ops that are over, how many were missed."""

    view: JudgedRank
    issued: tuple[wire.Op, ...] = ()
    ended: tuple[wire.Op, ...] = ()
    lost: int = 0
    text: str = ""  # why some were missed, or why there are none


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
        """What came since the last time, and how many events of ops did not fit."""
        with self._lock:
            taken, lost = self._waiting, self._lost
            self._waiting, self._count, self._lost = [], 0, 0
        return taken, lost


@dataclass(slots=True)
class _RankOps:
    """What was seen of one rank's ops."""

    asked_ns: int = 0
    issued: int = 0  # by its counters, when it was last asked
    last: int = -(2**63)  # sequence of the newest op that was seen; some are negative
    oldest: int = 0  # of the oldest one in the last response
    seen: frozenset[int] = frozenset()
    open: dict[int, wire.Op] = field(default_factory=dict)
    absent_ns: dict[int, int] = field(default_factory=dict)
    """Open ops out of reach: since when they are not among those that are pending."""
    numbers: dict[tuple[int, bool], int] = field(default_factory=dict)
    """The newest number of each group, of collectives and of messages."""
    begun: bool = False
    again: bool = True  # ask, whether or not something was issued
    limit: int = OVERLAP
    text: str = ""


class OpFollower:
    """Belongs to the source's thread. `follow` switches it on."""

    def __init__(self, tracker: RequestTracker, outlet: OpOutlet) -> None:
        self._tracker = tracker
        self._outlet = outlet
        self._wanted: frozenset[int] | None = frozenset()
        self._ranks: dict[tuple[str, int, int], _RankOps] = {}  # by host, key, and agent
        self._under_way: set[str] = set()

    def follow(self, ranks: Iterable[int] | None) -> None:
        """Follows these ranks from now on; None: all of the job that is shown."""
        self._wanted = frozenset(ranks) if ranks is not None else None

    def update(self, frame: Frame | None, now: int) -> None:
        """Asks each host for the rank that was not asked for the longest time."""
        if frame is None or not (self._wanted is None or self._wanted):
            return
        hosts: dict[str, list[tuple[int, JudgedRank, _RankOps]]] = defaultdict(list)
        there = set()
        for view in self._views(frame):
            key = (view.host, view.key, self._tracker.agent(view.host))
            there.add(key)
            known = self._ranks.setdefault(key, _RankOps())
            self._end_absent(view, known, now)
            if view.state != "unreachable":
                hosts[view.host].append((known.asked_ns, view, known))
        self._ranks = {key: known for key, known in self._ranks.items() if key in there}
        for host, ranks in hosts.items():
            asked_ns, view, known = min(ranks, key=lambda one: one[0])
            if host not in self._under_way and now - asked_ns >= INTERVAL_NS:
                self._ask(view, known, now)

    def _views(self, frame: Frame) -> list[JudgedRank]:
        if self._wanted is None:
            return list(frame.ranks.values())
        return [frame.ranks[rank] for rank in self._wanted if rank in frame.ranks]

    def _ask(self, view: JudgedRank, known: _RankOps, now: int) -> None:
        issued = issued_by(view)
        over = view.exit_info is not None
        if not known.again and issued == known.issued and (over or not known.open):
            known.asked_ns = now  # nothing can be new
            return
        new = max(0, issued - known.issued) if known.begun else 0
        open_back = known.last - min(known.open, default=known.last)
        # Twice as many as there were: more come until the agent answers, and steps lie between.
        limit = max(known.limit, 2 * new + OVERLAP, open_back + new + OVERLAP)
        known.limit = limit = min(MOST, limit)
        request = wire.HistoryRequest(0, view.key, limit)
        received = partial(self._received, view, known)
        if self._tracker.request_now(view.host, request, received, now):
            self._under_way.add(view.host)
            known.asked_ns = now
            known.issued = issued

    def _received(
        self, view: JudgedRank, known: _RankOps, response: wire.Response, _now: int
    ) -> None:
        self._under_way.discard(view.host)
        if not isinstance(response, wire.HistoryResponse):
            text = response.text if isinstance(response, wire.Error) else "no history"
            if text != known.text:
                known.text = text
                self._outlet.put(FollowedOps(view, text=text))
            known.again = True
            return
        known.again = False
        ops = sorted(ops_of(response.history)[-MOST:], key=lambda op: op.sequence)
        if not ops:
            return
        reaches_back = ops[0].sequence <= known.last + 1 or not known.begun
        if not reaches_back and known.limit < MOST and len(ops) * 2 > known.limit:
            known.limit = min(MOST, 4 * known.limit)  # and at once, before the ring turns over
            known.asked_ns, known.again = 0, True
            return
        known.limit = OVERLAP
        self._take(view, known, ops)

    def _take(self, view: JudgedRank, known: _RankOps, ops: list[wire.Op]) -> None:
        """Tells of ops that were not seen before, and of open ones that are over."""
        issued, ended, lost = [], [], 0
        for op in ops:
            number = known.numbers.get((op.group, op.p2p), 0)
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
            if op.group and not op.pseudo:
                if known.begun and is_new and 0 < number < op.number - 1:
                    lost += op.number - 1 - number
                known.numbers[op.group, op.p2p] = max(number, op.number)
            if not is_new or (not known.begun and not op.pending):
                continue  # what was over before we began is not of this stream
            issued.append(op)
            if op.pending:
                known.open[op.sequence] = op
            else:
                ended.append(op)
        known.last = max(known.last, ops[-1].sequence)
        known.oldest, known.seen = ops[0].sequence, frozenset(op.sequence for op in ops)
        known.begun = True
        if issued or ended or lost:
            text = "its ops came faster than they were asked for" if lost else ""
            self._outlet.put(FollowedOps(view, tuple(issued), tuple(ended), lost, text))

    def _end_absent(self, view: JudgedRank, known: _RankOps, now: int) -> None:
        """Ends ops that no response reaches any more, and that are no longer pending."""
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


def issued_by(view: JudgedRank) -> int:
    """How many ops a rank has issued, by its counters."""
    if view.status is not None and view.identity.prepared:
        return view.status.ops
    return sum(one.number + one.p2p for one in view.group_progress.values())
