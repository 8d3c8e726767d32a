"""Fetches the histories of the ranks that a screen shows as lanes, and keeps them up to date.

Only ranks in view cost anything: their newest ops are fetched first, older ones when they come into
view. Each host is asked for one rank at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from frtop_probe import wire
from frtop_tui.connect.followers import Follower, Order
from frtop_tui.connect.history_follower import MOST, FollowedRank, HistoryFollower
from frtop_tui.connect.request_tracker import RequestTracker
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.features.timeline.histories import Histories, histories_in
from frtop_tui.features.timeline.op_columns import PENDING_NS, OpColumns, columns_of, extended

FIRST: Final = 256
"""Ops of a rank in the first request: as many as a screen shows at its usual zoom."""


@dataclass(slots=True)
class _Followed(FollowedRank):
    """What was fetched from one rank."""

    rank: int = -1
    ops: OpColumns | None = None
    all_there: bool = False  # the rank has no older ops
    why_none: str = ""

    @property
    def open_ops(self) -> bool:
        return self.ops is not None and bool(len(self.ops)) and self.ops.reach[-1] == PENDING_NS


class FollowHistories(Struct, Order, frozen=True):
    """Keep only these ranks' histories fresh, from that time on (operator's clock)."""

    ranks: tuple[int, ...] = ()
    since_ns: int | None = None


class LaneFollower(Follower, HistoryFollower[_Followed]):
    """Fetches the histories of some ranks, and keeps them fresh."""

    name = "timeline"
    orders = (FollowHistories,)
    nothing = Histories()

    def __init__(self, tracker: RequestTracker) -> None:
        Follower.__init__(self, tracker)
        HistoryFollower.__init__(self, tracker)
        self._wanted: frozenset[int] = frozenset()
        self._since_ns: int | None = None
        self.histories = Histories()

    @property
    def news(self) -> Histories:
        return self.histories

    @classmethod
    def of_file(cls, frame: Frame) -> Histories:
        return histories_in(frame)

    def take(self, order: FollowHistories, frame: Frame | None, now: int) -> None:  # noqa: ARG002
        self.follow(order.ranks, order.since_ns)

    def follow(self, ranks: Iterable[int], since_ns: int | None) -> None:
        """Follows only these ranks; fetches their ops from that time on (operator's clock)."""
        wanted = frozenset(ranks)
        if self._since_ns != since_ns or not wanted <= self._wanted:
            for known in self._ranks.values():
                known.asked_ns = 0  # at once: somebody looks
        self._wanted, self._since_ns = wanted, since_ns
        if not wanted:
            self._ranks.clear()
            self.histories = Histories()

    def update(self, frame: Frame | None, now: int) -> None:
        """Asks for new ops, and for older ops that came into view."""
        if frame is None or not self._wanted:
            return
        if self.take_turns(filter(None, map(frame.ranks.get, self._wanted)), now):
            self._publish()

    def begin(self, view: JudgedRank) -> _Followed:
        return _Followed(limit=FIRST, rank=view.rank)

    def how_far_back(self, view: JudgedRank, known: _Followed, *, quiet: bool) -> int | None:
        if known.ops is not None and self._wants_older(view, known):
            return 4 * len(known.ops)
        return None if quiet and not known.open_ops else _open_back(known.ops)

    def nothing_new(self, view: JudgedRank, known: _Followed, now: int) -> None:
        if known.ops is not None:
            known.ops = known.ops.known_to(now - view.clock_ns)
            self._publish()

    def _wants_older(self, view: JudgedRank, known: _Followed) -> bool:
        """Whether ops in view have not been fetched yet, and may still exist."""
        ops = known.ops
        if self._since_ns is None or known.all_there or ops is None or not len(ops):
            return False
        return ops.issued[0] + view.clock_ns > self._since_ns

    def failed(self, view: JudgedRank, known: _Followed, text: str) -> None:  # noqa: ARG002
        known.why_none = text
        self._publish()

    def take_history(
        self, view: JudgedRank, known: _Followed, history: wire.History, limit: int, asked_ns: int
    ) -> bool:
        open_ops = {op.sequence for op in view.pending}
        try:
            new = columns_of(history, limit, asked_ns - view.clock_ns, open_ops)
        except ValueError as error:
            self.failed(view, known, f"its history cannot be read: {error}")
            return True
        known.all_there = limit >= MOST or _is_all(view, new, limit)
        known.why_none = "" if len(new) else history.note
        joined = extended(known.ops, new, 2 * MOST) if known.ops is not None else new
        if joined is None and limit < MOST:
            return False
        known.ops = joined if joined is not None else new
        known.begun = True
        self._publish()
        return True

    def _publish(self) -> None:
        known = self._ranks.values()
        self.histories = Histories(
            {one.rank: one.ops for one in known if one.ops is not None},
            {one.rank: one.why_none or "asking its agent" for one in known if one.ops is None},
        )


def _open_back(ops: OpColumns | None) -> int:
    """How many ops back the oldest pending one is."""
    if ops is None or not len(ops) or ops.reach[-1] != PENDING_NS:
        return 0
    return len(ops) - ops.reach.index(PENDING_NS)


def _is_all(view: JudgedRank, ops: OpColumns, limit: int) -> bool:
    """Whether a rank has no older ops. A recorder numbers slots, and steps take slots too."""
    last = max(ops.sequence, default=0) if view.identity.prepared else len(ops) + 1
    return last <= limit


FOLLOWERS: Final = (LaneFollower,)
