"""What the live source requests from agents by itself: states, snapshots, ops, clocks.

Each host gets one snapshot request of a kind at a time, for a bounded number of ranks: an agent
takes stacks for 2 s and skips the ranks that it did not reach. We request those afterwards.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from frtop_probe import wire
from frtop_tui.connect.request_tracker import BUSY_RETRY_NS, RequestTracker, in_state_already
from frtop_tui.diagnosis.cases.mismatch.checksums import OpsRequest
from frtop_tui.diagnosis.look_requests import LookRequest
from frtop_tui.diagnosis.model import Frame
from frtop_tui.files.histories import ops_of
from frtop_tui.job.state import JobState

WATCH_NS: Final = 500_000_000
WATCH_STACKS_NS: Final = 1_000_000_000
WATCHED_OPS: Final = 256
JUDGED_OPS: Final = 32
MAX_RANKS: Final = 16
"""Ranks per snapshot request for the diagnosis."""
STACKS_CHUNK: Final = 8
"""Ranks per request if the operator wants stacks of many ranks: two rounds of `py-spy`."""
MAX_OPS: Final = 1024
"""Ops per response to `compare_ops`: no block is larger."""


class AgentRequests:
    """Belongs to the source's thread."""

    def __init__(
        self,
        send: Callable[[str, wire.Request], bool],
        state: JobState,
        *,
        read_only: bool = False,
    ) -> None:
        self._read_only = read_only
        self._state = state
        self.tracker = RequestTracker(send)
        self.clocks = ClockRequests(self.tracker, state.measure_clock)
        self._states: dict[str, int] = {}
        """State requests under way, by host."""
        self._states_due: dict[str, int] = {}
        """When to ask a host again after an unusable response."""
        self._watched: frozenset[int] = frozenset()
        self._watched_at = self._stacks_at = 0
        self._wanted: dict[tuple[str, int, bool], LookRequest] = {}
        self._stacks: dict[tuple[str, tuple[int, ...]], int] = {}
        """Requests for stacks that the operator wants, by host and keys of ranks."""
        self._snapshots: dict[tuple[str, str, bool], int] = {}
        """Other requests for snapshots: purpose, host, and whether they include stacks."""

    def watch(self, ranks: frozenset[int]) -> None:
        """From now on, keeps snapshots of these ranks fresh, and of no others."""
        self._watched = ranks
        self._watched_at = self._stacks_at = 0

    def want(self, wanted: Iterable[LookRequest]) -> None:
        """Takes snapshots that the diagnosis needs before it can say more."""
        self._wanted |= {(one.host, one.key, one.stacks): one for one in wanted}

    def compare_ops(self, wanted: Iterable[OpsRequest], now: int) -> None:
        """Fetches ops that the diagnosis compares; each request ends, with or without ops."""
        for one in wanted:
            request = wire.HistoryRequest(0, one.key, 0, one.group, one.first, one.last)
            agent = self.tracker.agent(one.host)
            received = partial(self._ops_received, one)
            self.tracker.request(one.host, request, received, now, agent=agent)

    def take_stacks(self, frame: Frame | None, ranks: Iterable[int], now: int) -> None:
        """Takes the stacks of these ranks once, a few ranks per host at a time."""
        hosts: dict[str, list[int]] = defaultdict(list)
        asked = {(host, key) for host, keys in self._stacks for key in keys}
        for one in _wanted(frame, ranks, stacks=True) if frame is not None else ():
            if (one.host, one.key) not in asked:
                hosts[one.host].append(one.key)
        for host, keys in hosts.items():
            self._take_stacks(host, keys, now)

    def _take_stacks(self, host: str, keys: list[int], now: int, *, again: bool = True) -> None:
        agent = self.tracker.agent(host)
        for start in range(0, len(keys), STACKS_CHUNK):
            chunk = tuple(keys[start : start + STACKS_CHUNK])
            request = wire.SnapshotRequest(0, keys=chunk, stacks=True, ops=JUDGED_OPS)
            received = partial(self._stacks_received, host, again=again)
            self.tracker.request(
                host, request, received, now,
                agent=agent, under_way=self._stacks, about=(host, chunk),
            )  # fmt: skip

    def _stacks_received(
        self, host: str, response: wire.Response, now: int, *, again: bool
    ) -> None:
        """Asks once more for the ranks that the agent did not reach in time."""
        if again and isinstance(response, wire.SnapshotResponse):
            late = [
                snapshot.key
                for snapshot in response.snapshots
                if any(d.error == "deadline" and not d.threads for d in snapshot.dumps)
            ]
            self._take_stacks(host, late, now, again=False)

    def request_state(self, host: str, now: int, *, anew: bool = False) -> None:
        """Requests everything that an agent knows; with `anew`, even if a response is pending."""
        if anew:
            self._forget_state(host)
        elif host in self._states or now < self._states_due.get(host, 0):
            return
        self._states_due.pop(host, None)
        request = wire.StateRequest(0, self._read_only)
        received = partial(self._state_ended, host)
        if not self.tracker.request_now(
            host, request, received, now, under_way=self._states, about=host
        ):
            self._states_due[host] = now + BUSY_RETRY_NS

    def retry_state(self, host: str, now: int) -> None:
        """Asks again later: the response made no sense."""
        if host not in self._states:
            self._states_due.setdefault(host, now + self.tracker.timeout_ns(host))

    def connected(self, host: str, now: int) -> None:
        """Requests the state of a newly connected agent: earlier requests are lost."""
        self.request_state(host, now, anew=True)
        self.clocks.begin(host, now)

    def disconnected(self, host: str, now: int) -> None:
        """Forgets the requests to a host whose connection was lost."""
        self._forget_state(host)
        self.clocks.forget(host)
        self.tracker.disconnected(host, now)

    def identified(self, host: str, *, same: bool) -> None:
        """Notes which agent the host has: the `same` as before, or one with other keys."""
        self.tracker.identified(host, same=same)
        if not same:
            self._wanted = {slot: one for slot, one in self._wanted.items() if one.host != host}

    def receive(self, host: str, response: wire.Response, now: int) -> None:
        if isinstance(response, wire.StateResponse) and (number := self._states.get(host)):
            # If late, it may answer an earlier request: we have the state anyway.
            self.tracker.finish(number, response, now)
        else:
            self.tracker.receive(host, response, now)

    def update(self, frame: Frame | None, now: int) -> None:
        self.tracker.update(now)
        for host in list(self._states_due):
            self.request_state(host, now)
        self.clocks.show(_unprepared(frame), now)
        self.clocks.update(now)
        if frame is None:
            return
        if self._watched and now - self._watched_at >= WATCH_NS:
            stacks = now - self._stacks_at >= WATCH_STACKS_NS
            ranks = _wanted(frame, self._watched, stacks=stacks)
            if not self._request_snapshots("watch", ranks, now, WATCHED_OPS):
                self._watched_at = now
                self._stacks_at = now if stacks else self._stacks_at
        if self._wanted:
            unsent = self._request_snapshots("judge", tuple(self._wanted.values()), now)
            self._wanted = {(one.host, one.key, one.stacks): one for one in unsent}

    def _request_snapshots(
        self, purpose: str, wanted: Iterable[LookRequest], now: int, ops: int = JUDGED_OPS
    ) -> list[LookRequest]:
        """Sends one request per host and kind; returns what could not be requested now."""
        kinds: dict[tuple[str, bool], list[LookRequest]] = defaultdict(list)
        for one in wanted:
            kinds[one.host, one.stacks].append(one)
        unsent: list[LookRequest] = []
        for (host, stacks), ones in kinds.items():
            some, rest = ones[:MAX_RANKS], ones[MAX_RANKS:]
            request = wire.SnapshotRequest(
                0,
                keys=tuple(one.key for one in some),
                stacks=stacks,
                ops=ops,
                pids=tuple(pid for one in some for pid in one.pids),
            )
            sent = self.tracker.request_now(
                host, request, in_state_already, now,
                under_way=self._snapshots, about=(purpose, host, stacks),
            )  # fmt: skip
            unsent += rest if sent else ones
        return unsent

    def _state_ended(self, host: str, response: wire.Response, now: int) -> None:
        if not isinstance(response, wire.Error) or response.reason == "lost":
            return
        if response.reason == "deadline":
            self.request_state(host, now)
            return
        self._state.set_refused(host, response.text)
        self._states_due[host] = now + self.tracker.timeout_ns(host)
        self.tracker.extend_timeout(host)

    def _forget_state(self, host: str) -> None:
        self.tracker.drop(self._states.get(host, 0))
        self._states_due.pop(host, None)

    def _ops_received(self, one: OpsRequest, response: wire.Response, _now: int) -> None:
        ops: tuple[wire.Op, ...] = ()
        if isinstance(response, wire.HistoryResponse):
            ops = tuple(
                op
                for op in ops_of(response.history)
                if op.group == one.group and one.first <= op.number <= one.last and not op.p2p
            )[:MAX_OPS]
        self._state.apply_ops(one.host, one.key, one.hint, ops)


def _unprepared(frame: Frame | None) -> dict[str, tuple[int, ...]]:
    """By host, the keys of the shown ranks without a recorder: only these cost agents more."""
    found: dict[str, list[int]] = defaultdict(list)
    if frame is not None:
        for view in filter(None, map(frame.ranks.get, frame.coverage.unprepared)):
            found[view.host].append(view.key)
    return {host: tuple(keys) for host, keys in found.items()}


def _wanted(frame: Frame, ranks: Iterable[int], *, stacks: bool) -> tuple[LookRequest, ...]:
    return tuple(
        LookRequest(view.host, view.key, (), stacks)
        for rank in ranks
        if (view := frame.ranks.get(rank)) is not None
    )


FIRST: Final = 3
"""Number of requests in a row at first: usually one of them gets through quickly."""
INTERVAL_NS: Final = 5_000_000_000
DOUBTED_INTERVAL_NS: Final = 500_000_000
"""Between two requests to a host whose clock may have jumped."""
LOST_NS: Final = 15_000_000_000

NOTHING: Final[Mapping[str, tuple[int, ...]]] = {}

OnTime = Callable[[str, int, int, wire.TimeResponse], None]
"""Takes the host, our time before and after, and what the host's clocks said."""


@dataclass(slots=True)
class _Clock:
    burst: int = FIRST  # remaining requests of the first burst
    sent_ns: int = 0
    due_ns: int = 0


class ClockRequests:
    """Belongs to the source's thread."""

    def __init__(self, tracker: RequestTracker, on_time: OnTime) -> None:
        self._tracker = tracker
        self._on_time = on_time
        self._clocks: dict[str, _Clock] = {}
        self._under_way: dict[str, int] = {}
        self._shown: Mapping[str, tuple[int, ...]] = NOTHING

    def begin(self, host: str, now: int) -> None:
        """Starts measuring the clock of a newly connected host."""
        self.forget(host)
        self._clocks[host] = _Clock(due_ns=now)

    def forget(self, host: str) -> None:
        """Stops measuring the clock of a host."""
        self._clocks.pop(host, None)
        self._tracker.drop(self._under_way.get(host, 0))

    def hasten(self, host: str, now: int) -> None:
        """Asks soon: the host's clock is in doubt."""
        clock = self._clocks.get(host)
        if clock is not None:
            clock.due_ns = min(clock.due_ns, max(now, clock.sent_ns + DOUBTED_INTERVAL_NS))

    def show(self, shown: Mapping[str, tuple[int, ...]], now: int) -> None:
        """Takes the keys of the shown ranks, by host, to send them to the agents."""
        before, self._shown = self._shown, shown
        for host in before.keys() | shown.keys():
            clock = self._clocks.get(host)
            if clock is not None and before.get(host, ()) != shown.get(host, ()):
                clock.due_ns = min(clock.due_ns, now)  # at once: the job may be about to end

    def update(self, now: int) -> None:
        """Asks every host whose turn it is."""
        for host, clock in self._clocks.items():
            if now >= clock.due_ns:
                self._ask(host, clock, now)

    def _ask(self, host: str, clock: _Clock, now: int) -> None:
        received = partial(self._received, host, clock)
        request = wire.TimeRequest(0, self._shown.get(host, ()))
        if self._tracker.request_now(
            host, request, received, now,
            timeout_ns=LOST_NS, under_way=self._under_way, about=host,
        ):  # fmt: skip
            clock.sent_ns, clock.due_ns = now, now + INTERVAL_NS
            clock.burst = max(0, clock.burst - 1)

    def _received(self, host: str, clock: _Clock, response: wire.Response, now: int) -> None:
        if not isinstance(response, wire.TimeResponse):
            return
        self._on_time(host, clock.sent_ns, now, response)
        if clock.burst:
            self._ask(host, clock, now)
