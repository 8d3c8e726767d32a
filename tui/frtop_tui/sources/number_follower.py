"""Orders of the operator to ranks on what they record, and the numbers that they sample then.

A rank is asked for its samples once a second while it samples, some at a time on each host.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Final

from msgspec.structs import replace as replace_fields

from frtop_probe import wire
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.job.groups import identifier
from frtop_tui.numbers.comparison import findings
from frtop_tui.numbers.orders import NO_NUMBERS, RankControl, RecordOrder
from frtop_tui.numbers.samples import GroupNames, SampledRank
from frtop_tui.sources.commands import why_not_ask
from frtop_tui.sources.request_tracker import RequestTracker
from frtop_tui.sources.step_pace import StepPace

POLL_NS: Final = 1_000_000_000
HOLD_NS: Final = 1_500_000_000
"""After the first frame, an order waits so long until it is known how long a step takes."""
AT_A_HOST: Final = 2
"""Ranks of a host that are asked at a time: an agent works on four requests of one operator."""
OLD_BUILD: Final = (
    "{} were not switched: its agent or its recorder is of an earlier build; restart the agent, or"
    " the job"
)
PAUSE: Final = 10
"""A comparison that took long is followed by a pause of this many times its duration."""


class NumberFollower:
    """Belongs to the source's thread."""

    def __init__(self, tracker: RequestTracker) -> None:
        self._tracker = tracker
        self.numbers = NO_NUMBERS
        self._orders: list[RecordOrder] = []
        self._controls: dict[int, RankControl] = {}
        self._ranks: dict[int, SampledRank] = {}
        self._views: dict[int, JudgedRank] = {}
        self._asked_ns: dict[int, int] = {}
        self._under_way: set[int] = set()
        self._changed = self._fresh = False
        self._next_comparison = 0
        self._pace = StepPace()
        self._begun_ns = 0

    def order(self, order: RecordOrder) -> None:
        """Sends an order with the next frame."""
        self._orders.append(order)

    def update(self, frame: Frame | None, now: int) -> None:
        """Sends what is ordered, asks for what was sampled, and compares it."""
        if frame is None:
            return
        self._pace.update(frame)
        self._begun_ns = self._begun_ns or now
        if not (self._pace.is_unknown and now - self._begun_ns < HOLD_NS):
            orders, self._orders = self._orders, []
            for order in orders:
                from_step = self._pace.step_ahead(frame, order.ranks) if order.numbers else 0
                for rank in order.ranks:
                    self._send(frame, rank, order, from_step, now)
        busy = Counter(self._views[rank].host for rank in self._under_way)
        for rank, known in self._ranks.items():
            view = frame.ranks.get(rank)
            due = now - self._asked_ns.get(rank, 0) >= POLL_NS
            if view is None or not due or rank in self._under_way or not self._has_more(known):
                continue
            if busy[view.host] < AT_A_HOST:
                busy[view.host] += 1
                self._ask(view, known, now)
        if self._changed or (self._fresh and now >= self._next_comparison):
            self._publish(frame, now)

    def _has_more(self, known: SampledRank) -> bool:
        return known.state.on or known.state.samples > known.last

    def _send(self, frame: Frame, rank: int, order: RecordOrder, from_step: int, now: int) -> None:
        self._changed = True
        view = frame.ranks.get(rank)
        if view is None:
            self._controls[rank] = RankControl(problem="it is not heard")
            return
        reason, text = why_not_ask(frame, view)
        wanted = order.numbers
        if wanted is not None:
            wanted = replace_fields(wanted, from_step=from_step)
        if wanted is not None and order.group is not None:
            ids = tuple(n for n, one in view.groups.items() if identifier(one) == order.group)
            if not ids:
                reason, text = "group", "it is no member of that group"
            wanted = replace_fields(wanted, groups=ids)
        if reason:
            self._controls[rank] = RankControl(problem=text)
            return
        before = self._controls.get(rank)
        self._controls[rank] = RankControl(before.recorded if before else None, due=True)
        if wanted is not None and (wanted.ops or wanted.steps):
            self._ranks[rank] = SampledRank()  # from now on, so that old samples say nothing
        self._views[rank] = view
        request = wire.ControlRequest(
            0, view.key, wanted, order.phases, order.note, order.sites,
            order.modules,
        )  # fmt: skip
        # Once: a note that is sent again would be there twice.
        self._tracker.request(
            view.host, request, partial(self._controlled, rank, order), now, once=True
        )

    def _controlled(
        self, rank: int, order: RecordOrder, response: wire.Response, _now: int
    ) -> None:
        self._changed = True
        if not isinstance(response, wire.ControlResponse):
            text = response.text if isinstance(response, wire.Error) else "no answer"
            self._controls[rank] = RankControl(problem=text)
            self._ranks.pop(rank, None)
            return
        recorded = response.recorded if response.error in ("", "failed") else None
        problem = response.help if response.error else ""
        if not problem and order.sites not in (None, response.recorded.sites):
            problem = OLD_BUILD.format("call sites")
        elif not problem and order.modules not in (None, response.recorded.modules):
            problem = OLD_BUILD.format("modules")
        self._controls[rank] = RankControl(recorded, problem)
        known = self._ranks.get(rank)
        if recorded is None:
            self._ranks.pop(rank, None)
        elif known is not None:
            known.state = recorded.numbers

    def _ask(self, view: JudgedRank, known: SampledRank, now: int) -> None:
        self._asked_ns[view.rank] = now
        self._under_way.add(view.rank)
        self._views[view.rank] = view
        request = wire.NumbersRequest(0, view.key, known.last)
        self._tracker.request(view.host, request, partial(self._received, view, known), now)

    def _received(
        self, view: JudgedRank, known: SampledRank, response: wire.Response, _now: int
    ) -> None:
        self._under_way.discard(view.rank)
        if isinstance(response, wire.NumbersResponse):
            before = known.state, known.problem
            if known.add(view.rank, response, view.groups):
                self._fresh = True
                self._asked_ns[view.rank] = 0  # there may be more
            self._changed |= before != (known.state, known.problem)
        elif isinstance(response, wire.Error):
            known.problem = response.text
            known.state = wire.NumberState(samples=known.last)
            self._changed = True

    def _publish(self, frame: Frame, now: int) -> None:
        found = self.numbers.found
        if self._fresh and now >= self._next_comparison:
            begin = time.monotonic_ns()
            samples = (one for known in self._ranks.values() for one in known.samples)
            found = findings(samples, len(self._ranks))
            spent = time.monotonic_ns() - begin
            self._next_comparison = now + max(POLL_NS // 2, PAUSE * spent)
            self._fresh = False
        self._changed = False
        groups = (group for rank in self._ranks for group in _groups(frame, rank))
        self.numbers = replace(
            self.numbers,
            controls=dict(self._controls),
            states={rank: known.state for rank, known in self._ranks.items()},
            problems={rank: one.problem for rank, one in self._ranks.items() if one.problem},
            samples=sum(len(known.samples) for known in self._ranks.values()),
            lost=sum(known.lost for known in self._ranks.values()),
            found=found,
            names=GroupNames.of(groups),
        )


def _groups(frame: Frame, rank: int) -> Iterable[wire.Group]:
    view = frame.ranks.get(rank)
    return view.groups.values() if view is not None else ()
