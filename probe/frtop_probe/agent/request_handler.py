"""Receives operators' requests, and answers or refuses them."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

from frtop_probe import feature_folders, wire
from frtop_probe.agent.audit import ALL, Audit
from frtop_probe.agent.histories import history_response, no_recorder
from frtop_probe.agent.interfaces import OperatorChannel, log
from frtop_probe.agent.rank_client import pass_on
from frtop_probe.agent.rank_tracker import RankTracker
from frtop_probe.agent.rights import Operator
from frtop_probe.agent.ring_rank import RingRank
from frtop_probe.agent.snapshots import NativeStacksTaker, SnapshotTaker
from frtop_probe.agent.statistics_requests import statistics_response
from frtop_probe.agent.tracked_rank import TrackedRank

MAX_PENDING: Final = wire.Request.at_once
"""Unanswered slow requests per operator; further ones are refused, not queued."""
MAX_PENDING_TOTAL: Final = 32
MAX_PENDING_OF_OTHERS: Final = 16
"""The same for all users except the owner: they must not shut out the owner."""
MAX_PENDING_PER_KEY: Final = 8
"""The same for one other user, who must not shut out the rest."""

Handler = Callable[[str, Any, Any], Awaitable[wire.Response]]
"""Answers a request about one or several ranks: host, request, rank or ranks."""


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
        self._rights = channel.rights
        self._state = state
        self._taker = taker
        self._of_host: dict[type[wire.Request], Callable[[Any], wire.Response]] = {
            wire.TimeRequest: self._answer_time,
            wire.GaugeHistoryRequest: self._answer_gauges,
        }
        self._of_ranks: dict[type[wire.Request], Handler] = {
            wire.HistoryRequest: history_response,
            wire.NativeStacksRequest: NativeStacksTaker().take,
            wire.SnapshotRequest: self._answer_snapshots,
            wire.StatisticsRequest: statistics_response,
        }
        for feature in feature_folders.modules("at_host"):
            self._of_ranks |= getattr(feature, "HANDLERS", {})
        self.last_asked = -math.inf
        """When the last request arrived."""
        self.gauge_history: Callable[[wire.GaugeHistoryRequest], wire.GaugeHistory] | None = None
        """Returns the gauges of the host; None if nobody reads them."""
        # At the end of a pipe, the log is the operator's own output.
        self._audit = Audit(None if tracker.guest else log)
        self._pending: Counter[Operator] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Receives requests until cancelled."""
        auditing = asyncio.create_task(self._audit.run())
        try:
            while True:
                operator, frame = await self._channel.receive()
                await asyncio.sleep(0)  # a flood of requests must not stop the ticks
                await self._receive(operator, frame)
        finally:
            auditing.cancel()
            await asyncio.wait((auditing,))

    async def _receive(self, operator: Operator, frame: bytes) -> None:
        try:
            request = wire.decode_request(wire.from_frame(frame))
        except wire.WireError:
            await self._send(operator, wire.Error(0, MALFORMED, "words"))
            return
        try:
            await self._handle(operator, request)
        except Exception as error:  # noqa: BLE001 - one request must not end the agent
            self._tracker.note_fault(f"a request failed: {error!r}")

    async def close(self) -> None:
        """Cancels requests that are not yet answered."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _handle(self, operator: Operator, request: wire.Request) -> None:
        right = await self._rights.right(operator.key)
        if right is not None:
            self.last_asked = time.monotonic()
        if isinstance(request, wire.StateRequest) and request.read_only:
            self._rights.give_up(operator)
        refusal = self._rights.why_not_act(operator, right, self._host)
        if right is None or (refusal and request.acts):
            self._note(request, operator, "refused to")
            await self._send(operator, wire.Error(request.id, refusal, "permission"))
            return
        if isinstance(request, wire.StateRequest):
            self._note(request, operator, "asked by")
            response = wire.StateResponse(request.id, self._state(), may_act=not refusal)
            await self._send(operator, response)
            return
        if (handler := self._of_host.get(type(request))) is not None:
            await self._send(operator, handler(request))
            return
        if self._is_full(operator):
            self._note(request, operator, "refused to")
            text = "the agent is busy with earlier requests: wait for their answers"
            await self._send(operator, wire.Error(request.id, text, "busy"))
            return
        self._note(request, operator, "asked by")
        self._pending[operator] += 1
        task = asyncio.create_task(self._work(operator, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _note(self, request: wire.Request, operator: Operator, verb: str) -> None:
        """Notes what an operator asks of which ranks, before anything is done."""
        known = self._tracker.ranks
        pids = [known[key].pid for key in _keys_of(request) if key in known]
        if isinstance(request, wire.StateRequest):  # updates of all ranks follow
            pids = [ALL]
        if pids:
            who = self._rights.name(operator.key)
            self._audit.note(type(request).__name__, pids, f"{verb} {who}")

    def _answer_time(self, request: wire.TimeRequest) -> wire.Response:
        self._tracker.shown.note(request.shown, self._tracker.ranks)
        return wire.TimeResponse(request.id, time.monotonic_ns(), time.time_ns())

    def _answer_gauges(self, request: wire.GaugeHistoryRequest) -> wire.Response:
        found = self.gauge_history(request) if self.gauge_history else wire.GaugeHistory()
        return wire.GaugeHistoryResponse(request.id, self._host, found)

    def _is_full(self, operator: Operator) -> bool:
        """Whether this operator must wait for pending responses, its own or those of others."""
        if self._pending[operator] >= MAX_PENDING or self._pending.total() >= MAX_PENDING_TOTAL:
            return True
        if self._rights.is_owner(operator.key):
            return False
        others: Counter[bytes] = Counter()
        for other, count in self._pending.items():
            if not self._rights.is_owner(other.key):
                others[other.key] += count
        return (
            others.total() >= MAX_PENDING_OF_OTHERS or others[operator.key] >= MAX_PENDING_PER_KEY
        )

    async def _work(self, operator: Operator, request: wire.Request) -> None:
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

    async def _respond(self, request: wire.Request) -> wire.Response:
        handler = self._of_ranks.get(type(request))
        if not isinstance(request, wire.RankRequest | wire.RanksRequest):
            return wire.Error(request.id, MALFORMED, "words")
        wanted = _keys_of(request)
        known = self._tracker.ranks
        self._tracker.shown.note(wanted, known)
        ranks = [known[key] for key in dict.fromkeys(wanted) if key in known]
        if not ranks:
            text = f"{self._host} no longer has this rank: ask again"
            return wire.Error(request.id, text, "gone")
        if isinstance(request, wire.RanksRequest):
            return await (handler or _refuse)(self._host, request, ranks)
        rank = ranks[0]
        if request.in_rank or request.needs_recorder:
            if not isinstance(rank, RingRank):
                return no_recorder(request, rank)
            if request.in_rank and handler is None:
                return await pass_on(self._host, request, rank)
        return await (handler or _refuse)(self._host, request, rank)

    async def _answer_snapshots(
        self, host: str, request: wire.SnapshotRequest, ranks: list[TrackedRank]
    ) -> wire.Response:
        snapshots = await self._taker.take_requested(request, ranks)
        return wire.SnapshotResponse(request.id, host, snapshots, time.monotonic_ns())

    async def _send(self, operator: Operator, response: wire.Response) -> None:
        await self._channel.send(operator, wire.to_frame(response))


def _keys_of(request: wire.Request) -> tuple[int, ...]:
    """The ranks that a request names."""
    if isinstance(request, wire.RanksRequest):
        return request.keys
    return (request.key,) if isinstance(request, wire.RankRequest) else ()


async def _refuse(host: str, request: wire.Request, _: object) -> wire.Response:
    """Refuses a declared request that has no handler here."""
    text = f"the agent on {host} cannot do that ({type(request).__name__})"
    return wire.Error(request.id, text, "failed")


MALFORMED: Final = (
    "this agent does not understand the request: is it older than the screen? "
    "compare `frtop --version` on both hosts"
)
