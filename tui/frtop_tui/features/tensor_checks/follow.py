"""Sends the operator's orders on what ranks record, and fetches the values that they sample.

A rank that samples is asked for its samples once a second.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from msgspec.structs import replace as replace_fields

from frtop_probe import wire
from frtop_probe.features.tensor_checks.messages import NumberState, ReadSamples, SamplesResponse
from frtop_probe.wire.recording import ChangeRecording, RecordedNow, RecordingResponse
from frtop_tui.connect.asking import why_not_ask
from frtop_tui.connect.followers import Follower
from frtop_tui.connect.request_tracker import BUSY_RETRY_NS, RequestTracker
from frtop_tui.diagnosis.model import Frame, JudgedRank
from frtop_tui.features.tensor_checks.comparison import findings
from frtop_tui.features.tensor_checks.orders import (
    NO_NUMBERS,
    NOTHING,
    JobNumbers,
    RankControl,
    RecordOrder,
)
from frtop_tui.features.tensor_checks.samples import GroupNames, SampledRank
from frtop_tui.files.capture import author
from frtop_tui.job.groups import identifier
from frtop_tui.text.rank_words import format_exit

POLL_NS: Final = 1_000_000_000
HOLD_NS: Final = 1_500_000_000
"""After the first frame, an order waits up to this long for the duration of a step."""
ORDER_NS: Final = 9_000_000_000
"""How long an order is sent again while the agent is busy."""
NO_RECORDER: Final = "no recorder: start the job with `frtop run` next time"
UNREACHABLE_NS: Final = 5_000_000_000
"""A rank that is unreachable for this long is given up."""
PAUSE: Final = 10
"""After a comparison, the next one waits for this many times its duration."""


def operator_name() -> str:
    """Who samples, for other operators of the same ranks."""
    return f"{author()} PID {os.getpid()}"


@dataclass(frozen=True, slots=True)
class _Outgoing:
    """An order to one rank that was not sent yet, or whose agent was busy."""

    rank: int
    order: RecordOrder
    from_step: int
    until_ns: int
    from_ns: int = 0


class NumberFollower(Follower):
    """Sends orders, fetches samples, and compares them."""

    name = "tensor_checks"
    orders = (RecordOrder,)
    nothing = NO_NUMBERS

    def __init__(self, tracker: RequestTracker) -> None:
        super().__init__(tracker)
        self._by = operator_name()
        self._sent = 0
        """How many orders were sent."""
        self.numbers = NO_NUMBERS
        self._orders: list[RecordOrder] = []
        self._outgoing: list[_Outgoing] = []
        self._ordering: dict[tuple[str, int], int] = {}
        """Orders under way, by host and rank."""
        self._controls: dict[int, RankControl] = {}
        self._ranks: dict[int, SampledRank] = {}
        self._asked_ns: dict[int, int] = {}
        self._reading: dict[int, int] = {}
        """Requests for samples, by rank."""
        self._changed = self._fresh = False
        self._next_comparison = 0
        self._pace = StepPace()
        self._begun_ns = 0
        self._leaving = False

    @property
    def news(self) -> JobNumbers:
        return self.numbers

    def take(self, order: RecordOrder, frame: Frame | None, now: int) -> None:  # noqa: ARG002
        self.order(order)

    def order(self, order: RecordOrder) -> None:
        """Sends an order with the next frame."""
        self._orders.append(order)

    def update(self, frame: Frame | None, now: int) -> None:
        """Sends orders that are due, fetches new samples, and compares them."""
        if frame is None:
            return
        self._pace.update(frame)
        self._begun_ns = self._begun_ns or now
        if not (self._pace.is_unknown and now - self._begun_ns < HOLD_NS):
            orders, self._orders = self._orders, []
            for order in orders:
                from_step = self._pace.step_ahead(frame, order.ranks) if order.samples else 0
                for rank in order.ranks:
                    self._outgoing.append(_Outgoing(rank, order, from_step, now + ORDER_NS))
                    self._controls[rank] = RankControl(self._recorded(rank), due=True)
            self._sent += len(orders)
            self._changed |= bool(orders)
        self._send_orders(frame, now)
        self._give_up(frame, now)
        for rank, known in self._ranks.items():
            view = frame.ranks.get(rank)
            due = now - self._asked_ns.get(rank, 0) >= POLL_NS
            if view is not None and due and rank not in self._reading and _has_more(known):
                self._ask(view, known, now)
        if self._changed or (self._fresh and now >= self._next_comparison):
            self._publish(frame, now)

    def end(self) -> None:
        """Stops what ranks sample for this operator, not for others; see `is_ordering`."""
        self._leaving = True
        self._orders = [one for one in self._orders if not one.samples]
        self._outgoing = [one for one in self._outgoing if not one.order.samples]
        if ranks := tuple(rank for rank in self._ranks if self._may_end(rank)):
            self._orders.append(RecordOrder(ranks, NOTHING, own=True))

    def _may_end(self, rank: int) -> bool:
        """Whether a rank samples for us; without our watch's number, we would stop anybody's."""
        known = self._ranks.get(rank)
        return known is not None and bool(known.watch) and known.state.on and not known.gone

    @property
    def is_ordering(self) -> bool:
        """Whether a rank has not answered an order yet."""
        return bool(self._orders or self._outgoing or self._ordering)

    def _recorded(self, rank: int) -> RecordedNow | None:
        before = self._controls.get(rank)
        return before.recorded if before is not None else None

    def _is_ours(self, rank: int) -> bool:
        known = self._ranks.get(rank)
        return known is not None and not known.gone

    def _give_up(self, frame: Frame, now: int) -> None:
        """Stops asking ranks that have ended or are unreachable."""
        for rank, known in self._ranks.items():
            if _has_more(known) and (why := _why_gone(known, frame.ranks.get(rank), now)):
                known.give_up(why)
                self._changed = True

    def _send_orders(self, frame: Frame, now: int) -> None:
        """Sends as much as agents can take, one order at a time to each rank."""
        busy = Counter(host for host, _ in self._ordering)
        waiting, self._outgoing = self._outgoing, []
        held = {rank for _, rank in self._ordering}
        for one in waiting:
            view = frame.ranks.get(one.rank)
            full = view is not None and busy[view.host] >= ChangeRecording.at_once
            if full or now < one.from_ns or one.rank in held:
                self._outgoing.append(one)
                held.add(one.rank)
            elif self._send(frame, one, now) and view is not None:
                busy[view.host] += 1
                held.add(one.rank)

    def _send(self, frame: Frame, one: _Outgoing, now: int) -> bool:
        """Returns whether the rank is asked."""
        self._changed = True
        rank, order = one.rank, one.order
        view = frame.ranks.get(rank)
        if order.own and not self._is_ours(rank):
            self._controls[rank] = RankControl(self._recorded(rank))
            return False
        if view is None:
            self._controls[rank] = RankControl(problem="it is unreachable")
            return False
        reason, text = why_not_ask(frame, view)
        if not reason and view.exit_info is not None:
            reason, text = "gone", format_exit(view.exit_info)
        wanted = order.numbers
        if wanted is not None:
            watch = self._ranks[rank].watch if order.own else 0
            wanted = replace_fields(wanted, from_step=one.from_step, by=self._by, watch=watch)
        if wanted is not None and order.group is not None:
            ids = tuple(n for n, one in view.groups.items() if identifier(one) == order.group)
            if not ids:
                reason, text = "group", "it is no member of that group"
            wanted = replace_fields(wanted, groups=ids)
        if reason:
            self._controls[rank] = RankControl(problem=text)
            return False
        if order.samples:  # from now on: old samples do not count
            self._ranks[rank] = SampledRank(self._by, view.identity.pid)
        numbers = wanted.setting() if wanted is not None else {}
        settings = {**order.switches, **numbers}
        request = ChangeRecording(0, view.key, settings, order.note, order.longer)
        self._tracker.request(
            view.host, request, partial(self._controlled, one), now,
            under_way=self._ordering, about=(view.host, rank),
        )  # fmt: skip
        return True

    def _controlled(self, one: _Outgoing, response: wire.Response, now: int) -> None:
        self._changed = True
        rank, order = one.rank, one.order
        is_busy = isinstance(response, wire.Error) and response.reason == "busy"
        if is_busy and self._leaving and order.samples:
            return
        if is_busy and now < one.until_ns:  # it was not carried out
            self._outgoing.insert(0, replace(one, from_ns=now + BUSY_RETRY_NS))
            return
        if not isinstance(response, RecordingResponse):
            text = response.text if isinstance(response, wire.Error) else "no answer"
            if isinstance(response, wire.Error) and response.reason == "unprepared":
                own_reason = text.startswith(wire.OF_RECORDER)
                text = text if own_reason else NO_RECORDER  # one text for all, without their PIDs
            self._controls[rank] = RankControl(problem=text)
            if order.samples:
                self._ranks.pop(rank, None)
            return
        recorded = response.recorded if response.error in ("", "failed") else None
        problem = response.help if response.error else ""
        self._controls[rank] = RankControl(recorded, problem)
        known = self._ranks.get(rank)
        if recorded is None and order.samples:
            self._ranks.pop(rank, None)
        elif recorded is not None and known is not None and not known.gone:
            state = NumberState.of(recorded)
            known.watch = state.watch if order.samples else known.watch
            known.take_state(state)
            if self._leaving and order.samples and self._may_end(rank):
                self._orders.append(RecordOrder((rank,), NOTHING, own=True))

    def _ask(self, view: JudgedRank, known: SampledRank, now: int) -> None:
        self._asked_ns[view.rank] = now
        request = ReadSamples(0, view.key, known.last)
        self._tracker.request(
            view.host, request, partial(self._received, view, known), now,
            under_way=self._reading, about=view.rank,
        )  # fmt: skip

    def _received(
        self, view: JudgedRank, known: SampledRank, response: wire.Response, _now: int
    ) -> None:
        if isinstance(response, SamplesResponse):
            before = known.state, known.problem
            if known.gone:
                return
            if known.add(view.rank, response, view.groups, view.clock_ns):
                self._fresh = True
                self._asked_ns[view.rank] = 0  # there may be more
            self._changed |= before != (known.state, known.problem)
        elif isinstance(response, wire.Error):
            known.give_up(response.text)
            self._changed = True

    def _publish(self, frame: Frame, now: int) -> None:
        found, taken = self.numbers.found, self.numbers.taken
        if self._fresh and now >= self._next_comparison:
            begin = time.monotonic_ns()
            taken = [one for known in self._ranks.values() for one in known.samples]
            found = findings(taken, len(self._ranks))
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
            gone={rank: one.gone for rank, one in self._ranks.items() if one.gone},
            places=dict(_places(frame, found.named)),
            unfetched=sum(one.unfetched for one in self._ranks.values()),
            taken=taken,
            orders=self._sent,
        )


def _has_more(known: SampledRank) -> bool:
    return not known.gone and (known.state.on or known.unfetched > 0)


def _why_gone(known: SampledRank, view: JudgedRank | None, now: int) -> str:
    """Why a rank will not answer any more; "" if it may."""
    if view is None:
        return "no longer reporting"
    if known.pid != view.identity.pid:
        return "this rank is now another process: it was restarted"
    if view.exit_info is not None:
        return format_exit(view.exit_info)
    if view.exception is not None and view.exception.main:
        return f"ended by {view.exception.kind}"
    if view.state == "unreachable" and now - view.state_since_ns > UNREACHABLE_NS:
        return f"{view.host} is unreachable"
    return ""


def _places(frame: Frame, ranks: Iterable[int]) -> Iterator[tuple[int, str]]:
    for rank in ranks:
        if (view := frame.ranks.get(rank)) is not None:
            yield rank, f"PID {view.identity.pid} on {view.host}"


def _groups(frame: Frame, rank: int) -> Iterable[wire.Group]:
    view = frame.ranks.get(rank)
    return view.groups.values() if view is not None else ()


FOLLOWERS: Final = (NumberFollower,)


LEAD_NS: Final = 2_000_000_000
"""An order reaches all ranks within this time."""
MOST_SEEN: Final = 16


class StepPace:
    """Measures the duration of a step, on the first rank of each frame."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, int]] = deque(maxlen=MOST_SEEN)
        """Numbers of steps, and when each ended on the clock of that rank's host."""

    def update(self, frame: Frame) -> None:
        """Notes the step of a frame, if it is a new one."""
        status = next((view.status for view in frame.ranks.values()), None)
        if status is None or not status.step:
            return
        if self._seen and status.step < self._seen[-1][0]:
            self._seen.clear()  # another job, or the same one restarted
        if not self._seen or status.step > self._seen[-1][0]:
            self._seen.append((status.step, status.step_ns))

    @property
    def is_unknown(self) -> bool:
        """Whether only one step was seen: two are needed for a duration."""
        return len(self._seen) == 1

    def step_ahead(self, frame: Frame, ranks: Iterable[int]) -> int:
        """The number of a step that no rank reaches within `LEAD_NS`.

        0 if the duration of a step is not known, steps are long, or ranks are too many steps apart.
        """
        views = (frame.ranks.get(rank) for rank in ranks)
        steps = [view.status.step for view in views if view is not None and view.status is not None]
        if len(self._seen) < 2 or not steps:
            return 0
        (first, first_ns), (last, last_ns) = self._seen[0], self._seen[-1]
        each = (last_ns - first_ns) / (last - first)
        if not 0 < each < LEAD_NS / 2:
            return 0
        ahead = math.ceil(LEAD_NS / each)
        return max(steps) + 1 + ahead if max(steps) - min(steps) <= ahead else 0
