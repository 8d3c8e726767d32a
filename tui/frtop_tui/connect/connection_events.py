"""What happens between the operator and the agents, whatever the way to a host.

`agent_connections` (sockets) and `pipes` (ssh and the like) have the same events and verbs, so
nothing above them knows the difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from frtop_probe import wire
from frtop_tui.connect.endpoints import Endpoint, PipeEndpoint
from frtop_tui.errors import FrtopError
from frtop_tui.job.model import AgentKey

AnyEndpoint = Endpoint | PipeEndpoint


@dataclass(frozen=True, slots=True)
class Connected:
    """The agent of a host accepted us: it takes requests now.

    `limits` are sentences on what it cannot do there. `key` is the public key that it proved to
    have, or names the host behind a shell; `whose` says whose key that is.
    """

    host: str
    limits: tuple[str, ...] = ()
    key: bytes = field(default=b"", compare=False)
    whose: AgentKey = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class ConnectionFailed:
    host: str
    error: FrtopError


@dataclass(frozen=True, slots=True)
class Progressed:
    """The progress of a slow connection: `text` is a few words."""

    host: str
    text: str


@dataclass(frozen=True, slots=True)
class SamePlace:
    """Two names lead to one place: `host` is given up, `other` stays."""

    host: str
    other: str


@dataclass(frozen=True, slots=True)
class UpdateReceived:
    """An update of the agent with this instance: PUB messages do not name the sender.

    Whoever sent it has proved to have `key`.
    """

    update: wire.Update
    key: bytes = field(default=b"", compare=False)


@dataclass(frozen=True, slots=True)
class ResponseReceived:
    host: str
    response: wire.Response


@dataclass(frozen=True, slots=True)
class Examined:
    """What a program other than an agent found on a host, as it wrote it."""

    host: str
    facts: bytes


ConnectionEvent = (
    Connected
    | ConnectionFailed
    | Progressed
    | SamePlace
    | UpdateReceived
    | ResponseReceived
    | Examined
)


class Connections(Protocol):
    """Connections to agents. Owned by one thread; only `wait` blocks, for the given time."""

    def connect(self, endpoint: AnyEndpoint) -> None:
        """Begins to connect; events report the outcome."""

    def disconnect(self, endpoint: AnyEndpoint) -> None:
        """Gives an endpoint up."""

    def is_up(self, host: str) -> bool:
        """Whether the agent of the host takes requests."""

    def send(self, host: str, request: wire.Request) -> bool:
        """Sends a request; False if it cannot be sent now."""

    def wait(self, milliseconds: int) -> Iterator[ConnectionEvent]:
        """Yields what has happened; waits up to `milliseconds` for the first event."""

    def close(self) -> None:
        """Ends all connections."""


class JoinedConnections:
    """Owned by one thread."""

    def __init__(self, sockets: Connections, pipes: Connections) -> None:
        self._sockets = sockets
        self._pipes = pipes
        self._ways: dict[str, Connections] = {}  # by host

    def connect(self, endpoint: AnyEndpoint) -> None:
        way = self._pipes if isinstance(endpoint, PipeEndpoint) else self._sockets
        self._ways[endpoint.host] = way
        way.connect(endpoint)

    def disconnect(self, endpoint: AnyEndpoint) -> None:
        self._ways.pop(endpoint.host).disconnect(endpoint)

    def is_up(self, host: str) -> bool:
        way = self._ways.get(host)
        return way is not None and way.is_up(host)

    def send(self, host: str, request: wire.Request) -> bool:
        way = self._ways.get(host)
        return way is not None and way.send(host, request)

    def wait(self, milliseconds: int) -> Iterator[ConnectionEvent]:
        """Yields what has happened; each way gets half of the time."""
        yield from self._sockets.wait(milliseconds // 2)
        yield from self._pipes.wait(milliseconds // 2)

    def close(self) -> None:
        self._sockets.close()
        self._pipes.close()
