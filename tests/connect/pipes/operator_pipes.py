"""An operator's end of pipes, driven step by step."""

from __future__ import annotations

from collections.abc import Callable

from frtop_probe import wire
from frtop_probe.pipe.start_script import start_script
from frtop_tui.connect.connection_events import ConnectionEvent, ConnectionFailed, ResponseReceived
from frtop_tui.connect.endpoints import PipeEndpoint
from frtop_tui.connect.pipes.connections import PipeConnections
from frtop_tui.connect.pipes.payload import agent_lines
from frtop_tui.connect.pipes.places import Place
from waiting import DEADLINE_S, wait_for


class OperatorPipes:
    """The connections, and all that has happened."""

    def __init__(self) -> None:
        self.connections = PipeConnections(start_script(), agent_lines)
        self.events: list[ConnectionEvent] = []
        self.hosts: list[str] = []

    def reach(self, *found: Place) -> None:
        """Connects to all hosts of these places."""
        for place in found:
            for endpoint in place.find():
                self.hosts.append(endpoint.host)
                self.connections.connect(endpoint)

    def connect(self, host: str, *command: str) -> PipeEndpoint:
        endpoint = PipeEndpoint(host, (command,), command[0])
        self.connections.connect(endpoint)
        return endpoint

    def step(self) -> None:
        self.events += self.connections.wait(20)

    def await_that(self, condition: Callable[[], object], what: str) -> None:
        """Works until the condition holds."""

        def holds() -> bool:
            self.step()
            return bool(condition())

        wait_for(holds, what, pause_s=0)

    def await_event(self, event: ConnectionEvent, seconds: float = DEADLINE_S) -> None:
        def has_come() -> bool:
            self.step()
            return event in self.events

        wait_for(has_come, lambda: f"{event} among {self.events[-5:]}", seconds, pause_s=0)

    def await_failure(self, host: str, seconds: float = DEADLINE_S) -> str:
        def text() -> str:
            self.step()
            failed = [one for one in self.events if isinstance(one, ConnectionFailed)]
            return next((str(one.error) for one in failed if one.host == host), "")

        return wait_for(text, lambda: f"{host} fails; {self.events[-5:]}", seconds, pause_s=0)

    def ask(self, host: str, number: int) -> wire.Response:
        def responses() -> list[wire.Response]:
            self.step()
            found = [one for one in self.events if isinstance(one, ResponseReceived)]
            return [one.response for one in found if (one.host, one.response.id) == (host, number)]

        assert self.connections.send(host, wire.StateRequest(number))
        return wait_for(responses, f"a response of {host}", pause_s=0)[0]
