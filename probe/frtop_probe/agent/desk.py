"""Where requests of operators are taken, and answered or refused."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import zmq

from frtop_probe import keys, wire
from frtop_probe.agent.door import Door
from frtop_probe.agent.histories import excerpt, history
from frtop_probe.agent.looks import Looker
from frtop_probe.agent.responders import data, tensors
from frtop_probe.agent.roster import Roster

MAX_OWED: Final = 4
"""Unanswered requests per operator, of those that take time; more are refused, not queued."""
MAX_OWED_TO_ALL: Final = 32
MAX_OWED_TO_OTHERS: Final = 16
"""Of these, to all who are not the owner: whoever was admitted must not shut the owner out
by knocking on many connections."""
MAX_OWED_TO_KEY: Final = 8
"""Of those, to one key: nor somebody else who was admitted."""

Act = wire.TensorsRequest | wire.DataRequest
"""What makes the rank work, or shows data; the rest is reading."""
Slow = wire.SnapshotRequest | wire.HistoryRequest | wire.TensorsRequest | wire.DataRequest


@dataclass(frozen=True, slots=True)
class Operator:
    """Who asks. `key` is what the handshake has proved; the id of a connection proves nothing."""

    connection: bytes
    key: bytes


class Desk:
    """Answers at the door's socket for requests. `state` gives everything that is known."""

    def __init__(
        self,
        host: str,
        roster: Roster,
        door: Door,
        state: Callable[[], wire.Update],
        looker: Looker,
    ) -> None:
        self._host = host
        self._roster = roster
        self._door = door
        self._admission = door.admission
        self._state = state
        self._looker = looker
        self._owed: Counter[Operator] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Takes requests until it is cancelled."""
        while True:
            try:
                frames = await self._door.asks.recv_multipart(copy=False)
                await asyncio.sleep(0)  # a flood of requests must not stop the ticks
            except zmq.ZMQError:
                await asyncio.sleep(0.05)  # a message that could not be taken is lost
                continue
            if len(frames) != 2:
                continue
            try:
                # As the authenticator has put it: the public key in z85.
                operator = Operator(frames[0].bytes, str(frames[1].get("User-Id")).encode())
            except zmq.ZMQError:
                continue  # of nobody who was let in
            try:
                ask = wire.decode_request(wire.unpacked(frames[1].bytes))
            except wire.WireError:
                await self._send(operator, wire.Error(0, _MISUNDERSTOOD, "words"))
                continue
            await self._take(operator, ask)

    async def close(self) -> None:
        """Gives up what is not answered yet."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _take(self, operator: Operator, ask: wire.Request) -> None:
        right = await self._admission.right(operator.key)
        if isinstance(ask, wire.StateRequest) and ask.read_only:
            self._admission.give_up_acting(operator.connection, operator.key)
        barred = self._barred(operator, right)
        if right is None or (barred and isinstance(ask, Act)):
            await self._send(operator, wire.Error(ask.id, barred, "permission"))
            return
        if isinstance(ask, wire.StateRequest):
            answer = wire.StateResponse(ask.id, self._state(), may_act=not barred)
            await self._send(operator, answer)
            return
        if isinstance(ask, wire.TimeRequest):
            await self._send(
                operator, wire.TimeResponse(ask.id, time.monotonic_ns(), time.time_ns())
            )
            return
        if self._full(operator):
            text = "the agent is busy with earlier requests: wait for their answers"
            await self._send(operator, wire.Error(ask.id, text, "busy"))
            return
        self._owed[operator] += 1
        task = asyncio.create_task(self._work(operator, ask))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _full(self, operator: Operator) -> bool:
        """Whether this operator has to wait for answers, its own or those of others."""
        if self._owed[operator] >= MAX_OWED or self._owed.total() >= MAX_OWED_TO_ALL:
            return True
        if self._admission.is_owner(operator.key):
            return False
        others: Counter[bytes] = Counter()
        for one, owed in self._owed.items():
            if not self._admission.is_owner(one.key):
                others[one.key] += owed
        return others.total() >= MAX_OWED_TO_OTHERS or others[operator.key] >= MAX_OWED_TO_KEY

    def _barred(self, operator: Operator, right: keys.Right | None) -> str:
        """Why this operator may not act, with the next step; "" when it may."""
        typed = f"`frtop key admit {keys.shown(operator.key)}`"
        if right is None:
            return f"this agent does not admit your key any more; the jobs' owner can: {typed}"
        if self._admission.read_only:
            return (
                f"the agent on {self._host} lets everybody look and nobody ask anything of the "
                "ranks; that ends when it is started without --read-only and FRTOP_READ_ONLY"
            )
        if self._admission.gave_up_acting(operator.connection, operator.key):
            return "this screen may only look: it was started with --read-only; start it without"
        if right == "read":
            return (
                "your key may look, and ask nothing of the ranks; "
                f"the jobs' owner can allow more: {typed}"
            )
        return ""

    async def _work(self, operator: Operator, ask: Slow) -> None:
        answer: wire.Response
        try:
            answer = await self._answer(ask)
        except Exception as error:  # noqa: BLE001 - what one request meets must not end the agent
            answer = wire.Error(ask.id, f"the request failed: {error!r}", "failed")
        finally:
            self._owed[operator] -= 1
            if not self._owed[operator]:
                del self._owed[operator]
        try:
            await self._send(operator, answer)
        except Exception as error:  # noqa: BLE001 - likewise: what the wire has no word for
            text = f"the answer cannot be told: {error!r}"
            await self._send(operator, wire.Error(ask.id, text, "failed"))

    async def _answer(self, ask: Slow) -> wire.Response:
        keys = dict.fromkeys(ask.keys if isinstance(ask, wire.SnapshotRequest) else (ask.key,))
        ranks = [self._roster.ranks[key] for key in keys if key in self._roster.ranks]
        if not ranks:
            text = f"no such rank on {self._host} any more: ask for the state again"
            return wire.Error(ask.id, text, "gone")
        match ask:
            case wire.SnapshotRequest():
                looks = await self._looker.look(ask, ranks)
                return wire.SnapshotResponse(ask.id, self._host, looks, time.monotonic_ns())
            case wire.HistoryRequest() if ask.group:
                found = excerpt(ranks[0].view, ask.group, ask.first, ask.last)
                return wire.HistoryResponse(ask.id, self._host, ask.key, found)
            case wire.HistoryRequest():
                found = await history(ranks[0], ask.limit)
                return wire.HistoryResponse(ask.id, self._host, ask.key, found)
            case wire.TensorsRequest():
                return await tensors(self._host, ranks[0], ask)
            case wire.DataRequest():
                return await data(ranks[0], ask)

    async def _send(self, operator: Operator, answer: wire.Response) -> None:
        with suppress(zmq.ZMQError):  # it may have left meanwhile
            await self._door.asks.send_multipart([operator.connection, wire.packed(answer)])


_MISUNDERSTOOD: Final = (
    "this agent does not understand the request: is it older than the screen? "
    "compare `frtop --version` on both hosts"
)
