"""Fetches the histories of the ranks that a screen shows as lanes, and what is new in them.

What is asked for is what it costs: nothing of ranks that are not in view, of the others the newest
ops, more of them only when older ones come into view. Each host is asked for one rank at a time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from msgspec import Struct

from frtop_probe import wire
from frtop_tui.connect.followers import Follower, Order
from frtop_tui.connect.op_follower import MOST, OVERLAP, issued_by
from frtop_tui.connect.request_tracker import RequestTracker
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.features.timeline.column_builder import columns_of, extended
from frtop_tui.features.timeline.histories import Histories, histories_in
from frtop_tui.features.timeline.intervals import PENDING_NS
from frtop_tui.features.timeline.op_columns import OpColumns

INTERVAL_NS: Final = 500_000_000
FIRST: Final = 256
"""Ops of a rank that are asked for at first: as many as a screen shows at its usual zoom."""
RankOfAgent = tuple[str, int, int]
"""Host, key, and generation of the agent that gave the key."""


@dataclass(slots=True)
class _Followed:
    """What was fetched of one rank."""

    rank: int
    asked_ns: int = 0
    issued: int = 0  # by its counters, when it was last asked
    limit: int = FIRST
    again: bool = True  # ask, whether or not something was issued
    ops: OpColumns | None = None
    all_there: bool = False  # the rank has no older ops
    why_none: str = ""

    @property
    def open_ops(self) -> bool:
        return self.ops is not None and bool(len(self.ops)) and self.ops.reach[-1] == PENDING_NS


class FollowHistories(Struct, Order, frozen=True):
    """Keep the histories of these ranks fresh, and of no others, since that time (operator's)."""

    ranks: tuple[int, ...] = ()
    since_ns: int | None = None


class LaneFollower(Follower):
    """Fetches the histories of some ranks, and keeps them fresh."""

    name = "timeline"
    orders = (FollowHistories,)
    nothing = Histories()

    def __init__(self, tracker: RequestTracker) -> None:
        super().__init__(tracker)
        self._wanted: frozenset[int] = frozenset()
        self._since_ns: int | None = None
        self._ranks: dict[RankOfAgent, _Followed] = {}
        self._under_way: set[str] = set()
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
        """Follows these ranks, and no others; fetches their ops since that time (operator's)."""
        wanted = frozenset(ranks)
        if self._since_ns != since_ns or not wanted <= self._wanted:
            for known in self._ranks.values():
                known.asked_ns = 0  # at once: somebody looks
        self._wanted, self._since_ns = wanted, since_ns
        if not wanted:
            self._ranks.clear()
            self.histories = Histories()

    def update(self, frame: Frame | None, now: int) -> None:
        """Asks each host for the rank that was not asked for the longest time."""
        if frame is None or not self._wanted:
            return
        hosts: dict[str, list[tuple[int, JudgedRank, _Followed]]] = defaultdict(list)
        there = {}
        for view in map(frame.ranks.get, self._wanted):
            if view is None:
                continue
            key = (view.host, view.key, self._tracker.agent(view.host))
            known = there[key] = self._ranks.get(key) or _Followed(view.rank)
            if view.state != "unreachable":
                hosts[view.host].append((known.asked_ns, view, known))
        changed = there.keys() != self._ranks.keys()
        self._ranks = there
        for host, ranks in hosts.items():
            asked_ns, view, known = min(ranks, key=lambda one: one[0])
            if host not in self._under_way and now - asked_ns >= INTERVAL_NS:
                self._ask(view, known, now)
        if changed:
            self._publish()

    def _ask(self, view: JudgedRank, known: _Followed, now: int) -> None:
        issued = issued_by(view)
        wants_older = self._wants_older(view, known)
        if not (known.again or wants_older or known.open_ops) and issued == known.issued:
            known.asked_ns = now  # nothing can be new
            if known.ops is not None:
                known.ops = known.ops.known_to(now - view.clock_ns)
                self._publish()
            return
        new = max(0, issued - known.issued) if known.ops is not None else 0
        # Twice as many as there were: more come until the agent answers, and steps lie between.
        limit = max(known.limit, 2 * new + OVERLAP, new + OVERLAP + _open_back(known.ops))
        if wants_older and known.ops is not None:
            limit = max(limit, 4 * len(known.ops))
        limit = min(MOST, limit)
        request = wire.HistoryRequest(0, view.key, limit, columns=True)
        received = partial(self._received, view, known, limit, now)
        if self._tracker.request_now(view.host, request, received, now):
            self._under_way.add(view.host)
            known.asked_ns = now
            known.issued = issued

    def _wants_older(self, view: JudgedRank, known: _Followed) -> bool:
        """Whether ops that are in view were not fetched yet, and may be had."""
        ops = known.ops
        if self._since_ns is None or known.all_there or ops is None or not len(ops):
            return False
        return ops.issued[0] + view.clock_ns > self._since_ns

    def _received(
        self,
        view: JudgedRank,
        known: _Followed,
        limit: int,
        asked_ns: int,
        response: wire.Response,
        _now: int,
    ) -> None:
        self._under_way.discard(view.host)
        known.again = not isinstance(response, wire.HistoryResponse)
        if not isinstance(response, wire.HistoryResponse):
            known.why_none = response.text if isinstance(response, wire.Error) else "no history"
            self._publish()
            return
        open_ops = {op.sequence for op in view.pending}
        try:
            new = columns_of(response.history, limit, asked_ns - view.clock_ns, open_ops)
        except ValueError as error:
            known.why_none = f"its history cannot be read: {error}"
            self._publish()
            return
        known.all_there = limit >= MOST or _is_all(view, new, limit)
        known.limit = OVERLAP
        known.why_none = "" if len(new) else response.history.note
        joined = extended(known.ops, new, 2 * MOST) if known.ops is not None else new
        if joined is None and limit < MOST:
            known.limit, known.asked_ns, known.again = min(MOST, 4 * limit), 0, True
            return  # and at once, before the ring turns over
        known.ops = joined if joined is not None else new
        self._publish()

    def _publish(self) -> None:
        known = self._ranks.values()
        self.histories = Histories(
            {one.rank: one.ops for one in known if one.ops is not None},
            {one.rank: one.why_none or "asking its agent" for one in known if one.ops is None},
        )


def _open_back(ops: OpColumns | None) -> int:
    """How far the oldest pending op is from the newest one."""
    if ops is None or not len(ops) or ops.reach[-1] != PENDING_NS:
        return 0
    return len(ops) - ops.reach.index(PENDING_NS)


def _is_all(view: JudgedRank, ops: OpColumns, limit: int) -> bool:
    """Whether a rank has no older ops. A recorder numbers slots, which steps take as well."""
    last = max(ops.sequence, default=0) if view.identity.prepared else len(ops) + 1
    return last <= limit


FOLLOWERS: Final = (LaneFollower,)
