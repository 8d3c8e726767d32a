"""The sockets to all agents: two of them, however many hosts there are.

One SUB for updates. One ROUTER for requests that addresses each agent by an id of ours
(`ZMQ_CONNECT_ROUTING_ID`). Its monitor tells apart who is not there, who refuses our key,
and who is no agent at all.

An agent proves with its own key that it is one of ours, or of somebody we trust; which of
them is known only by trying. libzmq takes the key at `connect`, so for the next one the
connection is made anew.
"""

from __future__ import annotations

import enum
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import zmq
from zmq.utils.monitor import recv_monitor_message

from frtop_probe import wire
from frtop_probe.keys import KeyPair
from frtop_tui.errors import FrtopError
from frtop_tui.sources.places import Place
from frtop_tui.sources.refused import absent, foreign, gone, no_key_fits, not_admitted, stranger
from frtop_tui.sources.servers import Servers

PAUSE_S: Final = 0.1
"""Between two keys: what the old connection still has to say must not be taken for news."""
ROUND_S: Final = 2.0
"""When no key was right: until all are tried again, as somebody may put it right meanwhile."""
TURN_S: Final = 0.2
"""So long one turn takes in what has come; then wishes and the frame have theirs."""
_FAILED_HANDSHAKES: Final = (
    zmq.Event.HANDSHAKE_FAILED_AUTH
    | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
    | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
)


@dataclass(frozen=True, slots=True)
class Up:
    """The agent at a place took our key: it can be asked now."""

    place: str


@dataclass(frozen=True, slots=True)
class Down:
    """An agent at a place cannot be used; the error has the sentence."""

    place: str
    error: FrtopError


@dataclass(frozen=True, slots=True)
class Heard:
    """An update. Whose it is tells its instance: PUB messages do not say which peer sent."""

    update: wire.Update


@dataclass(frozen=True, slots=True)
class Answered:
    place: str
    answer: wire.Response


Happening = Up | Down | Heard | Answered


class _Phase(enum.Enum):
    """How far the connection to a place has come."""

    TRYING = enum.auto()
    CONNECTED = enum.auto()  # somebody accepted; who, the handshake will tell
    UP = enum.auto()
    TOLD = enum.auto()  # it failed in a way that was told; silent retries follow


@dataclass(slots=True, eq=False)
class _Link:
    """A place, and how far we are with it. `untried` are keys it may still have."""

    place: Place
    untried: list[bytes]
    server: bytes = b""
    phase: _Phase = _Phase.TRYING
    route: bytes = b""  # how the ROUTER addresses it
    due: float = 0.0  # not connected now: when to try again


class Line:
    """Owned by one thread."""

    def __init__(self, pair: KeyPair) -> None:
        self._pair = pair
        self._servers = Servers(pair)
        self._context = zmq.Context()
        self._sub = self._socket(zmq.SUB, pair)
        self._sub.setsockopt(zmq.SUBSCRIBE, b"")
        self._router = self._socket(zmq.ROUTER, pair)
        self._router.setsockopt(zmq.ROUTER_MANDATORY, 1)  # tell when nobody is there
        self._monitor = self._router.get_monitor_socket(
            zmq.Event.CONNECTED
            | zmq.Event.HANDSHAKE_SUCCEEDED
            | zmq.Event.CONNECT_RETRIED
            | zmq.Event.DISCONNECTED
            | _FAILED_HANDSHAKES
        )
        # Let in for requests a moment after it was refused for updates: else heard never.
        self._sub_monitor = self._sub.get_monitor_socket(
            zmq.Event.HANDSHAKE_FAILED_AUTH | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
        )
        self._poller = zmq.Poller()
        for one in (self._sub, self._router, self._monitor, self._sub_monitor):
            self._poller.register(one, zmq.POLLIN)
        self._links: dict[str, _Link] = {}  # by the name of the place
        self._connected: dict[str, _Link] = {}  # by the endpoint of its requests
        self._resting: list[_Link] = []
        self._connections = itertools.count(1)

    def _socket(self, kind: int, pair: KeyPair) -> zmq.Socket[bytes]:
        one = self._context.socket(kind)
        one.setsockopt(zmq.LINGER, 0)
        one.setsockopt(zmq.MAXMSGSIZE, wire.MAX_MESSAGE)
        one.setsockopt(zmq.RCVHWM, 10_000)
        one.setsockopt(zmq.RECONNECT_IVL, 200)
        one.setsockopt(zmq.RECONNECT_IVL_MAX, 2_000)
        # Without it the kernel tries for two minutes, at last once in half a minute: a cable
        # that is back would not be noticed.
        one.setsockopt(zmq.CONNECT_TIMEOUT, 3_000)
        one.setsockopt(zmq.HANDSHAKE_IVL, 3_000)  # something that takes calls and says nothing
        # A host cut off without a word is noticed. Only whole messages count as signs of
        # life: on a slow link a large answer must fit into the time.
        one.setsockopt(zmq.HEARTBEAT_IVL, 2_000)
        one.setsockopt(zmq.HEARTBEAT_TIMEOUT, 10_000)
        one.setsockopt(zmq.CURVE_PUBLICKEY, pair.public)
        one.setsockopt(zmq.CURVE_SECRETKEY, pair.secret)
        return one

    def connect(self, place: Place) -> None:
        link = self._links[place.name] = _Link(place, self._servers.of(place))
        self._open(link)

    def _open(self, link: _Link) -> None:
        """Connects with the next key."""
        place, link.server = link.place, link.untried.pop(0)
        self._connected[place.requests] = link
        for one in (self._router, self._sub):
            # With it, events of reconnects to IPv4 name another endpoint: [::ffff:...].
            one.setsockopt(zmq.IPV6, ":" in place.address)
            one.setsockopt(zmq.CURVE_SERVERKEY, link.server)
        # Never the same twice: libzmq aborts the process when a connection that is still
        # being taken down has the id of a new one.
        link.route = f"{next(self._connections)} {place.name}".encode()
        self._router.setsockopt(zmq.CONNECT_ROUTING_ID, link.route)
        self._router.connect(place.requests)
        self._sub.connect(place.updates)

    def disconnect(self, place: Place) -> None:
        link = self._links.pop(place.name)
        if link in self._resting:
            self._resting.remove(link)
        else:
            self._close(link)

    def _close(self, link: _Link) -> None:
        link.route = b""
        self._connected.pop(link.place.requests, None)
        self._router.disconnect(link.place.requests)
        self._sub.disconnect(link.place.updates)

    def _another_key(self, link: _Link) -> Iterator[Happening]:
        """This was not its key; or it was, and it hangs: libzmq does not tell which."""
        if link.untried:
            self._rest(link, PAUSE_S)
            link.phase = _Phase.TRYING
            return
        self._rest(link, ROUND_S)
        yield Down(link.place.name, no_key_fits(link.place, self._servers))

    def _rest(self, link: _Link, seconds: float) -> None:
        """Connects anew later: after a refusal or strange words libzmq never does by itself."""
        self._close(link)
        link.phase = _Phase.TOLD
        link.due = time.monotonic() + seconds
        self._resting.append(link)

    def _open_rested(self) -> None:
        now = time.monotonic()
        for link in [link for link in self._resting if link.due <= now]:
            self._resting.remove(link)
            link.untried = link.untried or self._servers.of(link.place)
            self._open(link)

    def is_up(self, place: str) -> bool:
        """Whether the agent there can be asked."""
        link = self._links.get(place)
        return link is not None and link.phase is _Phase.UP

    def ask(self, place: str, question: wire.Request) -> bool:
        """Sends a request; False when it cannot leave just now."""
        link = self._links.get(place)
        if link is None or link.phase is not _Phase.UP:
            return False
        try:
            self._router.send_multipart([link.route, wire.to_frame(question)], zmq.NOBLOCK)
        except zmq.ZMQError:
            return False
        return True

    def wait(self, milliseconds: int) -> Iterator[Happening]:
        """What has happened; waits up to `milliseconds` for the first of it."""
        ready = dict(self._poller.poll(milliseconds))
        self._open_rested()
        if self._monitor in ready:
            yield from self._socket_events()
        if self._sub_monitor in ready:
            yield from self._refused_updates()
        until = time.monotonic() + TURN_S
        if self._router in ready:
            yield from self._answers(until)
        if self._sub in ready:
            yield from self._updates(until + TURN_S)

    def _socket_events(self) -> Iterator[Happening]:
        while self._monitor.poll(0):
            event = recv_monitor_message(self._monitor)
            link = self._connected.get(event["endpoint"].decode())
            if link is not None:
                yield from self._moved(link, zmq.Event(event["event"]))

    def _refused_updates(self) -> Iterator[Happening]:
        """Updates alone were refused: what the requests' socket met tells itself."""
        while self._sub_monitor.poll(0):
            endpoint = recv_monitor_message(self._sub_monitor)["endpoint"].decode()
            links = (one for one in self._connected.values() if one.place.updates == endpoint)
            link = next(links, None)
            if link is not None and link.phase is _Phase.UP:
                link.untried = [link.server]
                self._rest(link, PAUSE_S)
                yield Down(link.place.name, not_admitted(link.place, self._pair))

    def _moved(self, link: _Link, event: zmq.Event) -> Iterator[Happening]:
        place = link.place
        before, link.phase = link.phase, _Phase.TRYING
        if event == zmq.Event.HANDSHAKE_SUCCEEDED:
            link.phase = _Phase.UP
            self._servers.proved(place, link.server)
            yield Up(place.name)
        elif event == zmq.Event.CONNECTED:
            link.phase = _Phase.CONNECTED
        elif event == zmq.Event.HANDSHAKE_FAILED_AUTH:
            link.untried = [link.server]  # it is that one's, and may let us in later
            self._rest(link, ROUND_S)
            yield Down(place.name, not_admitted(place, self._pair))
        elif event == zmq.Event.HANDSHAKE_FAILED_PROTOCOL:
            self._rest(link, ROUND_S)
            yield Down(place.name, stranger(place))
        elif event == zmq.Event.HANDSHAKE_FAILED_NO_DETAIL:
            yield from self._another_key(link)
        elif event == zmq.Event.DISCONNECTED and before in (_Phase.UP, _Phase.CONNECTED):
            link.untried = [link.server] if before is _Phase.UP else []
            self._rest(link, PAUSE_S if before is _Phase.UP else ROUND_S)
            yield Down(place.name, gone(place) if before is _Phase.UP else stranger(place))
        elif before is _Phase.TRYING:
            yield Down(place.name, absent(place))
        else:  # a retry after what has been told already, in better words
            link.phase = before

    def _answers(self, until: float) -> Iterator[Happening]:
        for frames in _drain(self._router, until):
            place = frames[0].partition(b" ")[2].decode()
            link = self._links.get(place)
            current = link is not None and link.route == frames[0]
            if current and len(frames) == 2:
                try:
                    yield Answered(place, wire.decode_response(wire.from_frame(frames[1])))
                except wire.WireError:
                    yield Down(place, foreign(place))

    def _updates(self, until: float) -> Iterator[Happening]:
        for frames in _drain(self._sub, until):
            try:
                yield Heard(wire.decode_update(wire.from_frame(frames[0])))
            except wire.WireError:
                continue  # shows as a gap in the numbers

    def close(self) -> None:
        self._router.disable_monitor()
        self._sub.disable_monitor()
        self._context.destroy(linger=0)


def _drain(one: zmq.Socket[bytes], until: float) -> Iterator[list[bytes]]:
    """What has come; what is left at `until` stays for the next turn."""
    while time.monotonic() < until:
        try:
            yield one.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return
