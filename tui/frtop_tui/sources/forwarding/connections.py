"""Connections to agents by sockets, some of them through hosts on the way.

ZeroMQ does the rest as ever: keys, requests, updates, heartbeats. Here it is told where to connect
once a host on the way carries, and its errors get the words that only that host knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from frtop_probe import wire
from frtop_tui.errors import FrtopError, Unreachable
from frtop_tui.sources.connection_events import (
    AnyEndpoint,
    ConnectionEvent,
    ConnectionFailed,
    Connections,
    Progressed,
)
from frtop_tui.sources.endpoints import Endpoint, ForwardedEndpoint
from frtop_tui.sources.forwarding.carrier import Begun, Carrier, Down, News, Up
from frtop_tui.sources.forwarding.local_port import LocalPort
from frtop_tui.sources.forwarding.refusals import cut_off


@dataclass(slots=True, eq=False)
class _Way:
    """A host on the way, and whether ZeroMQ may connect through it."""

    carrier: Carrier
    is_up: bool = False


@dataclass(slots=True, eq=False)
class _Forwarded:
    """An agent behind it: our two ports for it, and the endpoint of these."""

    way: _Way
    ports: tuple[LocalPort, LocalPort]
    endpoint: Endpoint
    is_open: bool = False


class ForwardedConnections:
    """Owned by one thread. `sockets` connect; they take other endpoints as they are."""

    def __init__(self, sockets: Connections, script: bytes) -> None:
        """Args: script: what the shell of a host on the way is given."""
        self._sockets = sockets
        self._script = script
        self._ways: dict[tuple[str, ...], _Way] = {}
        self._forwarded: dict[str, _Forwarded] = {}  # by host
        self._refused: list[ConnectionFailed] = []

    def connect(self, endpoint: AnyEndpoint) -> None:
        """Begins to connect."""
        if not isinstance(endpoint, ForwardedEndpoint):
            self._sockets.connect(endpoint)
            return
        host, address = endpoint.host, endpoint.address
        updates: LocalPort | None = None
        try:
            updates = LocalPort(host, address, endpoint.pub, is_ask=False)
            requests = LocalPort(host, address, endpoint.ask, is_ask=True)
        except OSError as error:
            if updates is not None:
                updates.close()
            self._refused.append(ConnectionFailed(host, Unreachable(
                f"{host}: no socket can be made here: {error.strerror}", "raise `ulimit -n`"
            )))  # fmt: skip
            return
        way = self._ways.get(endpoint.command)
        if way is None:
            carrier = Carrier(endpoint.way, endpoint.command, self._script)
            way = self._ways[endpoint.command] = _Way(carrier)
        urls = (updates.url, requests.url)
        inner = Endpoint(host, address, endpoint.pub, endpoint.ask, forwarded=urls)
        self._forwarded[host] = one = _Forwarded(way, (updates, requests), inner)
        way.carrier.serve(updates, requests)
        if way.is_up:
            self._open(one)

    def _open(self, one: _Forwarded) -> None:
        if not one.is_open:
            one.is_open = True
            self._sockets.connect(one.endpoint)

    def _shut(self, one: _Forwarded) -> None:
        if one.is_open:
            one.is_open = False
            self._sockets.disconnect(one.endpoint)

    def disconnect(self, endpoint: AnyEndpoint) -> None:
        """Gives an endpoint up."""
        if not isinstance(endpoint, ForwardedEndpoint):
            self._sockets.disconnect(endpoint)
        elif (one := self._forwarded.pop(endpoint.host, None)) is not None:
            self._shut(one)
            one.way.carrier.withdraw(*one.ports)

    def is_up(self, host: str) -> bool:
        """Whether the agent of the host takes requests."""
        return self._sockets.is_up(host)

    def send(self, host: str, request: wire.Request) -> bool:
        """Sends a request; False when it cannot leave now."""
        return self._sockets.send(host, request)

    def wait(self, milliseconds: int) -> Iterator[ConnectionEvent]:
        """Gives what has happened; waits up to `milliseconds` for the first event."""
        while self._refused:
            yield self._refused.pop()
        for way in list(self._ways.values()):
            while not way.carrier.news.empty():
                yield from self._take(way, way.carrier.news.get())
        for event in self._sockets.wait(milliseconds):
            if isinstance(event, ConnectionFailed) and event.host in self._forwarded:
                yield ConnectionFailed(event.host, self._worded(event.host, event.error))
            else:
                yield event

    def _take(self, way: _Way, news: News) -> Iterator[ConnectionEvent]:
        name = way.carrier.way
        for host, one in list(self._forwarded.items()):
            if one.way is not way:
                continue
            match news:
                case Begun():
                    yield Progressed(host, f"reaching {name}")
                case Up():
                    way.is_up = True
                    yield Progressed(host, f"connecting through {name}")
                    self._open(one)
                case Down(error):
                    way.is_up = False
                    self._shut(one)
                    yield ConnectionFailed(host, cut_off(error, host))

    def _worded(self, host: str, error: FrtopError) -> FrtopError:
        """What the host on the way says of it, where it says something."""
        return self._forwarded[host].way.carrier.problems.get(host, error)

    def close(self) -> None:
        """Ends all connections."""
        self._sockets.close()
        for way in self._ways.values():
            way.carrier.close()
