"""The service of the agent of all users: operators on one side, a process per user on the other.

While nobody looks, nothing is read and no process runs. Who looks gets the ranks of the users that
root's list gives to their key, and of no others: not in a state, not in an update, not in an error.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import zmq
from msgspec.structs import replace

from frtop_probe import keys, wire
from frtop_probe.agent.interfaces import Operator
from frtop_probe.agent.request_handler import MALFORMED
from frtop_probe.agent.service import TICK
from frtop_probe.agent.sockets import AgentSockets
from frtop_probe.all_users.admitted import AdmittedKey
from frtop_probe.all_users.audit import AuditLog, AuditProblem, line_of
from frtop_probe.all_users.host_admission import HostAdmission, limits_of
from frtop_probe.all_users.host_figures import HostFigures
from frtop_probe.all_users.requests import RankRequests
from frtop_probe.all_users.subscription import Subscription
from frtop_probe.all_users.user_process import Asker, UserProcess
from frtop_probe.all_users.user_processes import UserProcesses

LEFT_S: Final = 20.0
"""A connection that has asked for nothing for so long has left: a screen asks every 5 s."""
LIST_S: Final = 1.0
"""The list is read again as often while somebody looks, besides at every request."""
STATE_S: Final = 3.0
"""How long the state waits for a user's process that has just been started."""
MAX_CONNECTIONS: Final = 512
MAX_CONNECTIONS_OF_KEY: Final = 32
MAX_PENDING: Final = 64
"""Requests that wait for answers, of all keys but root's. Each process bounds them by key, too."""
MAX_PENDING_OF_KEY: Final = 16
_GIVEN: Final = b"\0"
"""How ids begin that libzmq gives to connections: no client can choose one, none is given twice."""


@dataclass(slots=True)
class _Connection:
    """A connection that has asked for the state, and what it is told."""

    operator: Operator
    subscription: Subscription
    follows: bool = False
    heard: float = field(default_factory=time.monotonic)


class AllUsersService:
    """Serves all users' ranks. Needs a running event loop."""

    def __init__(
        self,
        sockets: AgentSockets,
        admission: HostAdmission,
        audit: AuditLog,
        version: str,
    ) -> None:
        self.host = socket.gethostname()
        self.instance = secrets.token_hex(8)
        self.version = version
        self._sockets = sockets
        self._admission = admission
        self._audit = audit
        self._connections: dict[Operator, _Connection] = {}
        self._processes = UserProcesses(self._take)
        self._figures = HostFigures(lambda: bool(self._connections))
        self._pending: Counter[bytes] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._requests = RankRequests(
            self.host, audit, lambda: self._processes.by_number, str(admission.file)
        )

    async def run(self, leaving: asyncio.Event) -> None:
        """Works until `leaving` is set."""
        serving = asyncio.create_task(self._serve())
        caring = asyncio.create_task(self._care())
        reading = asyncio.create_task(self._figures.run())
        try:
            while not leaving.is_set() and not serving.done() and not caring.done():
                self._tick()
                with suppress(asyncio.TimeoutError, TimeoutError):
                    await asyncio.wait_for(leaving.wait(), TICK)
            for task in (serving, caring):
                if task.done():
                    task.result()  # raises: the unit starts it anew
        finally:
            tasks = [serving, caring, reading, *self._tasks]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._processes.close()

    async def _serve(self) -> None:
        while True:
            operator, frame = await self._sockets.receive()
            await asyncio.sleep(0)  # a flood of requests must not stop the ticks
            if not operator.connection.startswith(_GIVEN):
                # Whoever takes the id after this connection would be sent what is meant for it.
                await self._send(operator, wire.Error(0, _CHOSEN_ID, "permission"))
                continue
            try:
                request = wire.decode_request(wire.from_frame(frame))
            except wire.WireError:
                await self._send(operator, wire.Error(0, MALFORMED, "words"))
                continue
            if isinstance(request, wire.TimeRequest):
                await self._answer_time(operator, request)
                continue
            if self._is_full(operator):
                text = "the agent is busy with earlier requests: wait for their answers"
                await self._send(operator, wire.Error(request.id, text, "busy"))
                continue
            self._pending[operator.key] += 1
            task = asyncio.create_task(self._handle(operator, request))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _is_full(self, operator: Operator) -> bool:
        """Whether earlier requests have to be answered first; root is never shut out by others."""
        if self._pending[operator.key] >= MAX_PENDING_OF_KEY:
            return True
        others = sum(n for key, n in self._pending.items() if not self._admission.is_owner(key))
        return others >= MAX_PENDING and not self._admission.is_owner(operator.key)

    async def _answer_time(self, operator: Operator, request: wire.TimeRequest) -> None:
        if (known := self._connections.get(operator)) is not None:
            known.heard = time.monotonic()
        if (admitted := self._admission.known(operator.key)) is not None:
            self._processes.show(request.shown, admitted)
        now = wire.TimeResponse(request.id, time.monotonic_ns(), time.time_ns())
        await self._send(operator, now)

    async def _handle(self, operator: Operator, request: wire.Request) -> None:
        try:
            response = await self._respond(operator, request)
            if response is not None:
                await self._send(operator, response)
        except Exception as error:  # noqa: BLE001 - a failed request must not end the agent
            text = f"the request failed: {error!r}"
            await self._send(operator, wire.Error(request.id, text, "failed"))
        finally:
            self._pending[operator.key] -= 1
            if not self._pending[operator.key]:
                del self._pending[operator.key]

    async def _respond(self, operator: Operator, request: wire.Request) -> wire.Response | None:
        admitted = await self._admission.admitted(operator.key)
        if admitted is None:
            self._connections.pop(operator, None)
            text = f"this agent no longer admits your key; root can, in {self._admission.file}"
            return wire.Error(request.id, text, "permission")
        if (known := self._connections.get(operator)) is not None:
            known.heard = time.monotonic()
        if isinstance(request, wire.StateRequest):
            await self._tell_state(operator, admitted, request)
            return None
        if isinstance(request, wire.TimeRequest):
            return None  # answered above
        if isinstance(request, wire.GaugeHistoryRequest):
            found = self._figures.table.answer(request)
            return wire.GaugeHistoryResponse(request.id, self.host, found)
        return await self._requests.respond(operator, admitted, request, self._not_act(operator))

    def _not_act(self, operator: Operator) -> str:
        """Why nobody may act through this connection; "" if it is up to the key."""
        if self._admission.read_only:
            return (
                f"the agent on {self.host} is read-only: nobody may ask its ranks for anything; "
                "root can start it without --read-only"
            )
        if self._admission.is_read_only(operator.connection, operator.key):
            return "this screen may only read: it was started with --read-only; start it without"
        return ""

    async def _tell_state(
        self, operator: Operator, admitted: AdmittedKey, request: wire.StateRequest
    ) -> None:
        if request.read_only:
            self._admission.set_read_only(operator.connection, operator.key)
        connection = self._connections.get(operator)
        if connection is None:
            alike = sum(known.key == operator.key for known in self._connections)
            if len(self._connections) >= MAX_CONNECTIONS or alike >= MAX_CONNECTIONS_OF_KEY:
                text = "too many screens look at this host: close some"
                await self._send(operator, wire.Error(request.id, text, "busy"))
                return
            try:
                await self._audit.write(self._connected(operator, admitted))
            except AuditProblem as problem:
                text = f"refused, as the audit cannot be written: {problem}; root can repair that"
                await self._send(operator, wire.Error(request.id, text, "failed"))
                return
            connection = _Connection(operator, Subscription(self.instance))
            self._connections[operator] = connection
            await self._processes.look_around()  # who is there, before the first state
        connection.follows = request.follow
        subscription = connection.subscription
        await self._processes.start_wanted(self._looking())
        self._show(connection, admitted)
        subscription.ask()
        states = await self._states(operator, admitted, subscription.visible)
        empty = replace(self._empty(), gauges=self._figures.table.full())
        update = subscription.state(states, empty, self._notes(admitted))
        if len(states) < len(subscription.visible):
            subscription.lose()  # it asks again, for those that have not answered
        may_act = admitted.most == "act" and not self._not_act(operator)
        await self._send(operator, wire.StateResponse(request.id, update, may_act=may_act))

    async def _states(
        self, operator: Operator, admitted: AdmittedKey, numbers: frozenset[int]
    ) -> dict[int, wire.Update]:
        """The states of processes, of those that answer soon."""

        async def of(process: UserProcess) -> wire.Update | None:
            asker = Asker(operator, admitted.right(process.uid) == "act", admitted.is_owner)
            with suppress(asyncio.TimeoutError, TimeoutError):
                found = await asyncio.wait_for(process.ask(asker, wire.StateRequest(0)), STATE_S)
                return found.update if isinstance(found, wire.StateResponse) else None
            return None

        asked = [
            one for number in numbers if (one := self._processes.by_number.get(number)) is not None
        ]
        answers = await asyncio.gather(*map(of, asked))
        return {
            process.number: answer
            for process, answer in zip(asked, answers, strict=True)
            if answer is not None
        }

    def _tick(self) -> None:
        now = time.monotonic()
        empty = replace(self._empty(), gauges=self._figures.table.changes())
        for operator, connection in list(self._connections.items()):
            if now - connection.heard > LEFT_S:
                del self._connections[operator]
                continue
            admitted = self._admission.known(operator.key)
            if admitted is None:
                continue  # its next request is refused
            self._show(connection, admitted)
            update = connection.subscription.update(empty, self._notes(admitted))
            if update is not None and connection.follows:
                self._send_update(connection, update)

    def _send_update(self, connection: _Connection, update: wire.Update) -> None:
        """Sends an update unless the operator does not read: then it asks for the state later."""
        frame = wire.to_frame(wire.UpdateMessage(0, update))
        sent = asyncio.ensure_future(
            self._sockets.requests.send_multipart(
                [connection.operator.connection, frame], zmq.NOBLOCK
            )
        )

        def look(done: asyncio.Future[zmq.MessageTracker | None]) -> None:
            if not done.cancelled() and done.exception() is not None:
                connection.subscription.lose()

        sent.add_done_callback(look)

    def _show(self, connection: _Connection, admitted: AdmittedKey) -> None:
        """Sets which processes a connection may see, as of now."""
        visible = frozenset(
            one.number
            for one in self._processes.by_number.values()
            if one.runs and admitted.right(one.uid) is not None
        )
        connection.subscription.see(visible)

    async def _care(self) -> None:
        """Keeps the list and the processes up to date."""
        while True:
            await asyncio.sleep(LIST_S)
            if self._connections:
                await self._admission.refresh()
            await self._processes.care(self._looking())

    def _looking(self) -> list[AdmittedKey]:
        """What each key may do that looks now."""
        known = (self._admission.known(operator.key) for operator in self._connections)
        return [admitted for admitted in known if admitted is not None]

    def _take(self, process: UserProcess, update: wire.Update) -> None:
        for connection in self._connections.values():
            connection.subscription.take(process.number, update)

    def _notes(self, admitted: AdmittedKey) -> tuple[str, ...]:
        """What is to be said of the host itself: to each only of users that they may see."""
        problems = self._processes.problems
        of_users = (text for uid, text in problems.items() if admitted.right(uid) is not None)
        own = self._admission.all_notes if admitted.is_owner else ()
        return (*own, *limits_of(admitted), *of_users)

    def _empty(self) -> wire.Update:
        return wire.Update(
            self.host, self.instance, 0, time.monotonic_ns(), time.time_ns(), version=self.version
        )

    def _connected(self, operator: Operator, admitted: AdmittedKey) -> dict[str, object]:
        return line_of(
            who=admitted.name,
            key=keys.format_public(operator.key),
            right=admitted.most or "",
            request="connect",
            host=self.host,
            ranks=(),
        )

    async def _send(self, operator: Operator, response: wire.Response) -> None:
        await self._sockets.send(operator, wire.to_frame(response))


_CHOSEN_ID: Final = (
    "a connection that has chosen its id is not served here: leave ZMQ_ROUTING_ID unset"
)
