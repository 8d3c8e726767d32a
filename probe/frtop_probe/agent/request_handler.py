"""Receives operators' requests, and answers or refuses them."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable
from typing import Final, Literal

from frtop_probe import wire
from frtop_probe.agent.control_requests import control_rank, read_numbers
from frtop_probe.agent.histories import excerpt, history
from frtop_probe.agent.interfaces import Operator, OperatorChannel
from frtop_probe.agent.native_requests import NativeStacksTaker
from frtop_probe.agent.rank_client import read_tensor_data, summarize_tensors
from frtop_probe.agent.rank_tracker import RankTracker
from frtop_probe.agent.ring_rank import RingRank
from frtop_probe.agent.shown_ranks import ShownRanks
from frtop_probe.agent.snapshots import SnapshotTaker
from frtop_probe.agent.statistics_requests import statistics_response
from frtop_probe.agent.tracked_rank import TrackedRank
from frtop_probe.agent.unprepared.unprepared_rank import UnpreparedRank
from frtop_probe.features.flame import at_host as stack_samples
from frtop_probe.features.profile.at_host import profile, profile_data

MAX_PENDING: Final = 4
"""Unanswered slow requests per operator; further ones are refused, not queued."""
MAX_PENDING_TOTAL: Final = 32
MAX_PENDING_OF_OTHERS: Final = 16
"""Of all users but the owner: they must not shut the owner out with many connections."""
MAX_PENDING_PER_KEY: Final = 8
"""Of one other user: nor must one of them shut out the rest."""

ActRequest = (
    wire.TensorsRequest
    | wire.DataRequest
    | wire.NativeStacksRequest
    | wire.ProfileRequest
    | wire.ProfileDataRequest
    | wire.ControlRequest
    | wire.NumbersRequest
)
"""Requests that make a rank work or stand still, or show data; all others only read."""
RankRequest = (
    wire.HistoryRequest
    | wire.TensorsRequest
    | wire.DataRequest
    | wire.ProfileRequest
    | wire.ProfileDataRequest
    | wire.ControlRequest
    | wire.NumbersRequest
)
"""Requests that only a rank with a recorder can answer."""
ManyRanksRequest = wire.SnapshotRequest | wire.StatisticsRequest
AnyRankRequest = wire.NativeStacksRequest | wire.SampleRequest
"""Requests about one rank, with a recorder or without."""
SlowRequest = ManyRanksRequest | RankRequest | AnyRankRequest


class RequestHandler:
    """Answers requests. `state` makes the full update of this host."""

    def __init__(
        self,
        host: str,
        tracker: RankTracker,
        channel: OperatorChannel,
        state: Callable[[], wire.Update],
        taker: SnapshotTaker,
    ) -> None:
        self._host = host
        self._tracker = tracker
        self._channel = channel
        self._admission = channel.admission
        self._state = state
        self._taker = taker
        self._native = NativeStacksTaker(host)
        self.last_asked = -math.inf
        """When an operator last asked for anything."""
        self.shown = ShownRanks()
        self.gauge_history: Callable[[wire.GaugeHistoryRequest], wire.GaugeHistory] | None = None
        """Gives the gauges of the host; None: nobody reads them."""
        self._pending: Counter[Operator] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Receives requests until it is cancelled."""
        while True:
            operator, frame = await self._channel.receive()
            await asyncio.sleep(0)  # a flood of requests must not stop the ticks
            try:
                request = wire.decode_request(wire.from_frame(frame))
            except wire.WireError:
                await self._send(operator, wire.Error(0, MALFORMED, "words"))
                continue
            try:
                await self._handle(operator, request)
            except Exception as error:  # noqa: BLE001 - one request must not end the agent
                self._tracker.note_fault(f"a request failed: {error!r}")

    async def close(self) -> None:
        """Cancels the requests that are not answered yet."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _handle(self, operator: Operator, request: wire.Request) -> None:
        right = await self._admission.right(operator.key)
        if right is not None:
            self.last_asked = time.monotonic()
        if isinstance(request, wire.StateRequest) and request.read_only:
            self._admission.set_read_only(operator.connection, operator.key)
        refusal = self._why_not_act(operator, right)
        if right is None or (refusal and isinstance(request, ActRequest)):
            await self._send(operator, wire.Error(request.id, refusal, "permission"))
            return
        if isinstance(request, wire.StateRequest):
            response = wire.StateResponse(request.id, self._state(), may_act=not refusal)
            await self._send(operator, response)
            return
        if isinstance(request, wire.TimeRequest):
            self.shown.note(request.shown, self._tracker.ranks)
            now = wire.TimeResponse(request.id, time.monotonic_ns(), time.time_ns())
            await self._send(operator, now)
            return
        if isinstance(request, wire.GaugeHistoryRequest):
            found = self.gauge_history(request) if self.gauge_history else wire.GaugeHistory()
            await self._send(operator, wire.GaugeHistoryResponse(request.id, self._host, found))
            return
        if self._is_full(operator):
            text = "the agent is busy with earlier requests: wait for their answers"
            await self._send(operator, wire.Error(request.id, text, "busy"))
            return
        self._pending[operator] += 1
        task = asyncio.create_task(self._work(operator, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _is_full(self, operator: Operator) -> bool:
        """Whether this operator must wait for responses, its own or those of others."""
        if self._pending[operator] >= MAX_PENDING or self._pending.total() >= MAX_PENDING_TOTAL:
            return True
        if self._admission.is_owner(operator.key):
            return False
        others: Counter[bytes] = Counter()
        for other, count in self._pending.items():
            if not self._admission.is_owner(other.key):
                others[other.key] += count
        return (
            others.total() >= MAX_PENDING_OF_OTHERS or others[operator.key] >= MAX_PENDING_PER_KEY
        )

    def _why_not_act(self, operator: Operator, right: Literal["read", "act"] | None) -> str:
        """Why this operator may not act, and what to do about it; "" when it may."""
        command = f"`{self._admission.admit_command(operator.key)}`"
        if right is None:
            return f"this agent no longer admits your key; the jobs' owner can: {command}"
        if self._admission.read_only:
            return (
                f"the agent on {self._host} is read-only: nobody may ask its ranks for anything; "
                "to change that, start it without --read-only and FRTOP_READ_ONLY"
            )
        if self._admission.is_read_only(operator.connection, operator.key):
            return "this screen may only read: it was started with --read-only; start it without"
        if right == "read":
            return (
                "your key may only read, not ask the ranks for anything; "
                f"the jobs' owner can allow more: {command}"
            )
        return ""

    async def _work(self, operator: Operator, request: SlowRequest) -> None:
        response: wire.Response
        try:
            response = await self._respond(request)
        except Exception as error:  # noqa: BLE001 - a failed request must not end the agent
            response = wire.Error(request.id, f"the request failed: {error!r}", "failed")
        finally:
            self._pending[operator] -= 1
            if not self._pending[operator]:
                del self._pending[operator]
        try:
            await self._send(operator, response)
        except Exception as error:  # noqa: BLE001 - likewise, for values that cannot be encoded
            text = f"the response cannot be encoded: {error!r}"
            await self._send(operator, wire.Error(request.id, text, "failed"))

    async def _respond(self, request: SlowRequest) -> wire.Response:
        wanted = request.keys if isinstance(request, ManyRanksRequest) else (request.key,)
        known = self._tracker.ranks
        self.shown.note(wanted, known)
        ranks = [known[key] for key in dict.fromkeys(wanted) if key in known]
        if not ranks:
            text = f"{self._host} no longer has this rank: ask for the state again"
            return wire.Error(request.id, text, "gone")
        if isinstance(request, ManyRanksRequest):
            return await self._ask_many(request, ranks)
        rank = ranks[0]
        if isinstance(request, AnyRankRequest):
            return await self._ask_any(request, rank)
        if isinstance(rank, RingRank):
            return await self._ask(request, rank)
        return await self._ask_unprepared(request, rank)

    async def _ask_any(self, request: AnyRankRequest, rank: TrackedRank) -> wire.Response:
        match request:
            case wire.NativeStacksRequest():
                return await self._native.take(request, rank)
            case wire.SampleRequest():
                return await stack_samples.sample(self._host, request, rank)

    async def _ask_many(self, request: ManyRanksRequest, ranks: list[TrackedRank]) -> wire.Response:
        if isinstance(request, wire.StatisticsRequest):
            return await statistics_response(self._host, request, ranks)
        snapshots = await self._taker.take_requested(request, ranks)
        return wire.SnapshotResponse(request.id, self._host, snapshots, time.monotonic_ns())

    async def _ask_unprepared(self, request: RankRequest, rank: TrackedRank) -> wire.Response:
        """What torch's own recorder has of a rank without ours, or why there is nothing."""
        if not (isinstance(rank, UnpreparedRank) and isinstance(request, wire.HistoryRequest)):
            text = f"process {rank.pid} has no recorder: nothing in it can answer"
            return wire.Error(request.id, rank.recorder_note or text, "unprepared")
        flight = rank.flight
        if request.group:
            # Out of the read that the sums were of: the ring may have gone on since.
            found = flight.excerpt(request.group, request.first, request.last)
        else:
            await rank.read_first(request.limit)
            found = flight.history(request.limit)
        if not found.rows and not request.group:
            why = flight.note or "the Flight Recorder was not read yet"
            return wire.Error(request.id, why, "unprepared")
        return wire.HistoryResponse(request.id, self._host, request.key, found)

    async def _ask(  # noqa: PLR0911 - one each
        self, request: RankRequest, rank: RingRank
    ) -> wire.Response:
        match request:
            case wire.HistoryRequest() if request.group:
                ops = await excerpt(rank.view, request.group, request.first, request.last)
                return wire.HistoryResponse(request.id, self._host, request.key, ops)
            case wire.HistoryRequest():
                ops = await history(rank, request.limit, columns=request.columns)
                return wire.HistoryResponse(request.id, self._host, request.key, ops)
            case wire.TensorsRequest():
                return await summarize_tensors(self._host, rank, request)
            case wire.DataRequest():
                return await read_tensor_data(rank, request)
            case wire.ProfileRequest():
                return await profile(self._host, rank, request)
            case wire.ProfileDataRequest():
                return await profile_data(rank, request)
            case wire.ControlRequest():
                return await control_rank(self._host, rank, request)
            case wire.NumbersRequest():
                return await read_numbers(self._host, rank, request)

    async def _send(self, operator: Operator, response: wire.Response) -> None:
        await self._channel.send(operator, wire.to_frame(response))


MALFORMED: Final = (
    "this agent does not understand the request: is it older than the screen? "
    "compare `frtop --version` on both hosts"
)
