"""Agents that are reached in two ways at once, by sockets and through pipes, as one."""

from __future__ import annotations

from collections.abc import Iterator

from frtop_probe import wire
from frtop_tui.connect.connection_events import AnyEndpoint, ConnectionEvent, Connections
from frtop_tui.connect.endpoints import PipeEndpoint


class JoinedConnections:
    """Owned by one thread."""

    def __init__(self, sockets: Connections, pipes: Connections) -> None:
        self._sockets = sockets
        self._pipes = pipes
        self._ways: dict[str, Connections] = {}  # by host

    def connect(self, endpoint: AnyEndpoint) -> None:
        """Begins to connect."""
        way = self._pipes if isinstance(endpoint, PipeEndpoint) else self._sockets
        self._ways[endpoint.host] = way
        way.connect(endpoint)

    def disconnect(self, endpoint: AnyEndpoint) -> None:
        """Gives an endpoint up."""
        self._ways.pop(endpoint.host).disconnect(endpoint)

    def is_up(self, host: str) -> bool:
        """Whether the agent of the host takes requests."""
        way = self._ways.get(host)
        return way is not None and way.is_up(host)

    def send(self, host: str, request: wire.Request) -> bool:
        """Sends a request; False when it cannot leave now."""
        way = self._ways.get(host)
        return way is not None and way.send(host, request)

    def wait(self, milliseconds: int) -> Iterator[ConnectionEvent]:
        """Gives what has happened; each way is given half of the time."""
        yield from self._sockets.wait(milliseconds // 2)
        yield from self._pipes.wait(milliseconds // 2)

    def close(self) -> None:
        """Ends all connections."""
        self._sockets.close()
        self._pipes.close()
