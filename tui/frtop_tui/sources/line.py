"""The sockets to all agents: two of them, however many hosts there are.

One SUB for updates. One ROUTER for requests that addresses each agent by an id of ours
(`ZMQ_CONNECT_ROUTING_ID`), which it keeps over reconnects. Its monitor tells
apart who is not there, who refuses our key, and who is no agent at all.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import zmq
from zmq.utils.monitor import recv_monitor_message

from frtop_probe import wire
from frtop_probe.keys import KeyPair
from frtop_tui.errors import FrtopError, Unreachable, WrongKey
from frtop_tui.sources.places import Place

_FAILED_HANDSHAKES = (
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
    answer: wire.Answer


Happening = Up | Down | Heard | Answered


class _Phase(enum.Enum):
    """How far the connection to a place has come."""

    TRYING = enum.auto()
    CONNECTED = enum.auto()  # somebody accepted; who, the handshake will tell
    UP = enum.auto()
    TOLD = enum.auto()  # it failed in a way that was told; silent retries follow


class Line:
    """Owned by one thread."""

    def __init__(self, keys: KeyPair) -> None:
        self._context = zmq.Context()
        self._sub = self._socket(zmq.SUB, keys)
        self._sub.setsockopt(zmq.SUBSCRIBE, b"")
        self._router = self._socket(zmq.ROUTER, keys)
        self._router.setsockopt(zmq.ROUTER_MANDATORY, 1)  # tell when nobody is there
        self._monitor = self._router.get_monitor_socket(
            zmq.Event.CONNECTED
            | zmq.Event.HANDSHAKE_SUCCEEDED
            | zmq.Event.CONNECT_RETRIED
            | zmq.Event.DISCONNECTED
            | _FAILED_HANDSHAKES
        )
        self._poller = zmq.Poller()
        for one in (self._sub, self._router, self._monitor):
            self._poller.register(one, zmq.POLLIN)
        self._places: dict[str, Place] = {}  # by the endpoint of its requests
        self._phases: dict[str, _Phase] = {}
        self._connections = itertools.count(1)
        self._routes: dict[str, bytes] = {}  # place -> how the ROUTER addresses it

    def _socket(self, kind: int, keys: KeyPair) -> zmq.Socket[bytes]:
        one = self._context.socket(kind)
        one.setsockopt(zmq.LINGER, 0)
        one.setsockopt(zmq.MAXMSGSIZE, wire.MAX_MESSAGE)
        one.setsockopt(zmq.RCVHWM, 10_000)
        one.setsockopt(zmq.RECONNECT_IVL, 200)
        one.setsockopt(zmq.RECONNECT_IVL_MAX, 2_000)
        one.setsockopt(zmq.HANDSHAKE_IVL, 3_000)  # something that takes calls and says nothing
        one.setsockopt(zmq.HEARTBEAT_IVL, 2_000)  # a host cut off without a word is noticed
        one.setsockopt(zmq.HEARTBEAT_TIMEOUT, 6_000)
        one.setsockopt(zmq.CURVE_PUBLICKEY, keys.public)
        one.setsockopt(zmq.CURVE_SECRETKEY, keys.secret)
        one.setsockopt(zmq.CURVE_SERVERKEY, keys.public)  # agents of a user share its pair
        return one

    def connect(self, place: Place) -> None:
        self._places[place.requests] = place
        self._phases[place.name] = _Phase.TRYING
        for one in (self._router, self._sub):
            # With it, events of reconnects to IPv4 name another endpoint: [::ffff:...].
            one.setsockopt(zmq.IPV6, ":" in place.address)
        # Never the same twice: libzmq aborts the process when a connection that is still
        # being taken down has the id of a new one.
        route = f"{next(self._connections)} {place.name}".encode()
        self._routes[place.name] = route
        self._router.setsockopt(zmq.CONNECT_ROUTING_ID, route)
        self._router.connect(place.requests)
        self._sub.connect(place.updates)

    def disconnect(self, place: Place) -> None:
        self._places.pop(place.requests, None)
        self._phases.pop(place.name, None)
        self._routes.pop(place.name, None)
        self._router.disconnect(place.requests)
        self._sub.disconnect(place.updates)

    def ask(self, place: str, question: wire.Ask) -> bool:
        """Sends a request; False when it cannot leave just now."""
        if self._phases.get(place) is not _Phase.UP:
            return False
        try:
            self._router.send_multipart(
                [self._routes[place], wire.PROTOCOL, wire.encode(question)], zmq.NOBLOCK
            )
        except zmq.ZMQError:
            return False
        return True

    def wait(self, milliseconds: int) -> Iterator[Happening]:
        """What has happened; waits up to `milliseconds` for the first of it."""
        ready = dict(self._poller.poll(milliseconds))
        if self._monitor in ready:
            yield from self._socket_events()
        if self._router in ready:
            yield from self._answers()
        if self._sub in ready:
            yield from self._updates()

    def _socket_events(self) -> Iterator[Happening]:
        while self._monitor.poll(0):
            event = recv_monitor_message(self._monitor)
            place = self._places.get(event["endpoint"].decode())
            if place is None:
                continue
            kind = zmq.Event(event["event"])
            before, self._phases[place.name] = self._phases[place.name], _Phase.TRYING
            if kind == zmq.Event.HANDSHAKE_SUCCEEDED:
                self._phases[place.name] = _Phase.UP
                yield Up(place.name)
            elif kind == zmq.Event.CONNECTED:
                self._phases[place.name] = _Phase.CONNECTED
            elif kind & _FAILED_HANDSHAKES:
                self._phases[place.name] = _Phase.TOLD
                yield Down(place.name, _refused(place, kind))
            elif kind == zmq.Event.DISCONNECTED and before in (_Phase.UP, _Phase.CONNECTED):
                self._phases[place.name] = _Phase.TOLD
                up = before is _Phase.UP
                yield Down(place.name, _gone(place) if up else _stranger(place))
            elif before is _Phase.TRYING:
                yield Down(place.name, _absent(place))
            else:  # a retry after what has been told already, in better words
                self._phases[place.name] = before

    def _answers(self) -> Iterator[Happening]:
        for frames in _drain(self._router):
            place = frames[0].partition(b" ")[2].decode()
            current = self._routes.get(place) == frames[0]
            if current and len(frames) == 3 and frames[1] == wire.PROTOCOL:
                try:
                    yield Answered(place, wire.decode_answer(frames[2]))
                except wire.WireError:
                    yield Down(place, _foreign(place))

    def _updates(self) -> Iterator[Happening]:
        for frames in _drain(self._sub):
            if frames[0] == wire.PROTOCOL:
                try:
                    yield Heard(wire.decode_update(frames[-1]))
                except wire.WireError:
                    continue  # shows as a gap in the numbers

    def close(self) -> None:
        self._router.disable_monitor()
        self._context.destroy(linger=0)


def _drain(one: zmq.Socket[bytes], limit: int = 10_000) -> Iterator[list[bytes]]:
    for _ in range(limit):
        try:
            yield one.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return


def _refused(place: Place, kind: zmq.Event) -> FrtopError:
    if kind == zmq.Event.HANDSHAKE_FAILED_AUTH:
        return WrongKey(
            f"the agent on {place.name} does not admit our key",
            "use the key of the job's owner (FRTOP_KEY_FILE), or have ours added to its "
            "authorized_keys",
        )
    if kind == zmq.Event.HANDSHAKE_FAILED_PROTOCOL:
        return _stranger(place)
    # It hangs up, or is too busy for the handshake: libzmq does not tell which.
    return WrongKey(
        f"the agent on {place.name} hangs up: it uses another key than ours, or it hangs",
        "use the key of the job's owner: FRTOP_KEY_FILE, or copy its frtop/key here; "
        "if it is the same, start that agent anew",
    )


def _stranger(place: Place) -> FrtopError:
    return Unreachable(
        f"what listens at {place.address}:{place.ask} ({place.name}) is no frtop agent",
        "name its port: --connect host:port; on that host, `frtop agent` prints it",
    )


def _foreign(place: str) -> FrtopError:
    return Unreachable(
        f"the agent on {place} answers in words that this frtop does not know",
        "install the same version of frtop on both sides",
    )


def _gone(place: Place) -> FrtopError:
    return Unreachable(
        f"the agent on {place.name} went away",
        "shown is what was last known; it is taken up again when it comes back",
    )


def _absent(place: Place) -> FrtopError:
    return Unreachable(
        f"nobody answers on {place.name} ({place.address}, ports {place.pub} and {place.ask})",
        "an agent runs there when the job was started with `frtop run`; "
        "else start it there: `frtop agent`",
    )
