"""The sockets to all agents: two, however many hosts there are, if all agents have the same key.

For each key, a SUB socket receives updates: so no owner can send updates for another's agent. A
ROUTER sends requests and addresses each agent by an id of
ours (`ZMQ_CONNECT_ROUTING_ID`). Its monitor distinguishes agents that are absent, that
refuse our key, and services that are no agent.

An agent proves itself with the key of its owner: ours, or that of a user we trust. We find out
which by trying. libzmq takes the key at `connect`, so each key needs a new connection.

What follows when an agent is lost: `request_tracker` fails its requests, `job/host` says when a
host is no longer reporting, `handshake` words the error.
"""

from __future__ import annotations

import enum
import errno
import itertools
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import zmq
from zmq.utils.monitor import recv_monitor_message

from frtop_probe import wire
from frtop_probe.agent.announcement import Announcement, find_agents
from frtop_probe.keys import KeyPair
from frtop_probe.proc import pid_stat
from frtop_probe.ring.folder import FolderError, folder
from frtop_probe.ring.pid_namespace import PidNamespace
from frtop_tui.connect.connection_events import (
    AnyEndpoint,
    Connected,
    ConnectionEvent,
    ConnectionFailed,
    ResponseReceived,
    UpdateReceived,
)
from frtop_tui.connect.endpoints import Endpoint, is_loopback
from frtop_tui.connect.handshake import (
    AgentKeys,
    absent,
    disconnected,
    gone_meanwhile,
    incompatible,
    no_key_fits,
    not_admitted,
    not_an_agent,
)
from frtop_tui.errors import FrtopError, Unreachable
from frtop_tui.job.model import AgentKey

NEXT_KEY_S: Final = 0.1
"""Between two keys: late events of the old connection must not be taken for new ones."""
HANDSHAKE_MS: Final = 3_000
"""How long a service that accepts the connection may stay silent."""
RECONNECT_S: Final = 2.0
"""Pause after no key fitted: somebody may add one meanwhile."""
AT_ONCE: Final = 64
LEAST_AT_ONCE, MOST_AT_ONCE = 16, 256
"""Hosts that are being connected to at once. Each costs a millisecond of computing; if thousands
began together, none would be done within `HANDSHAKE_MS`, and they would begin again for ever."""
DRAIN_S: Final = 0.2
"""Longest time for taking in messages before commands and the frame get their turn."""
_FAILED_HANDSHAKES: Final = (
    zmq.Event.HANDSHAKE_FAILED_AUTH
    | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
    | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
)


class _Phase(enum.Enum):
    """How far the connection to an endpoint has come."""

    TRYING = enum.auto()
    ACCEPTED = enum.auto()  # somebody accepted; the handshake will show who
    UP = enum.auto()
    FAILED = enum.auto()  # reported; retries that fail the same way are not


@dataclass(slots=True, eq=False)
class _Link:
    """An endpoint and its connection. `untried` are keys its agent may still have."""

    endpoint: Endpoint
    untried: list[bytes]
    agent_key: bytes = b""
    phase: _Phase = _Phase.TRYING
    route: bytes = b""  # how the ROUTER addresses it
    retry_at: float = 0.0  # monotonic seconds; while it is not connected


class AgentConnections:
    """Owned by one thread."""

    def __init__(self, pair: KeyPair) -> None:
        self._pair = pair
        self._keys = AgentKeys(pair)
        self._context = zmq.Context()
        self._router = self._socket(zmq.ROUTER, pair)
        self._router.setsockopt(zmq.ROUTER_MANDATORY, 1)  # an error if nobody is there
        self._monitor = self._router.get_monitor_socket(
            zmq.Event.CONNECTED
            | zmq.Event.HANDSHAKE_SUCCEEDED
            | zmq.Event.CONNECT_RETRIED
            | zmq.Event.DISCONNECTED
            | _FAILED_HANDSHAKES
        )
        self._subs: dict[bytes, tuple[zmq.Socket[bytes], zmq.Socket[bytes]]] = {}
        """By the agents' key: its socket and the socket's monitor."""
        self._poller = zmq.Poller()
        for one in (self._router, self._monitor):
            self._poller.register(one, zmq.POLLIN)
        self._links: dict[str, _Link] = {}  # by host
        self._connected: dict[str, _Link] = {}  # by the URL for requests
        self._disconnected: list[_Link] = []
        self._waiting: deque[_Link] = deque()
        """Those that wait until fewer are being connected to, in order."""
        self._opening: set[_Link] = set()
        """Those whose first outcome is not known yet."""
        self._at_once = AT_ONCE
        self._connected_lately = self._timed_out_lately = 0
        self._adapted_at = 0.0
        self._connections = itertools.count(1)

    def _socket(self, kind: int, pair: KeyPair) -> zmq.Socket[bytes]:
        one = self._context.socket(kind)
        one.setsockopt(zmq.LINGER, 0)
        one.setsockopt(zmq.MAXMSGSIZE, wire.MAX_MESSAGE)
        one.setsockopt(zmq.RCVHWM, 10_000)
        one.setsockopt(zmq.RECONNECT_IVL, 200)
        one.setsockopt(zmq.RECONNECT_IVL_MAX, 2_000)
        # Otherwise the kernel tries for 2 minutes, at the end once every 30 s, and would not notice
        # a link that is back.
        one.setsockopt(zmq.CONNECT_TIMEOUT, 3_000)
        one.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        # Notices a host that is cut off. Only complete messages count as signs of life: on
        # a slow link a large response must fit into the time.
        one.setsockopt(zmq.HEARTBEAT_IVL, 2_000)
        one.setsockopt(zmq.HEARTBEAT_TIMEOUT, 10_000)
        one.setsockopt(zmq.CURVE_PUBLICKEY, pair.public)
        one.setsockopt(zmq.CURVE_SECRETKEY, pair.secret)
        return one

    def _sub_of(self, key: bytes) -> zmq.Socket[bytes]:
        """The socket for updates of agents that have this key."""
        if key not in self._subs:
            one = self._socket(zmq.SUB, self._pair)
            one.setsockopt(zmq.SUBSCRIBE, b"")
            # Only the updates may be refused, if our key is admitted just between the two.
            monitor = one.get_monitor_socket(
                zmq.Event.HANDSHAKE_FAILED_AUTH | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
            )
            self._subs[key] = one, monitor
            for each in (one, monitor):
                self._poller.register(each, zmq.POLLIN)
        return self._subs[key][0]

    def connect(self, endpoint: AnyEndpoint) -> None:
        assert isinstance(endpoint, Endpoint)
        link = self._links[endpoint.host] = _Link(endpoint, self._keys.candidates(endpoint))
        self._waiting.append(link)
        self._open_waiting()

    def _open_waiting(self) -> None:
        while self._waiting and len(self._opening) < self._at_once:
            self._open(self._waiting.popleft())

    def _adapt(self) -> None:
        """Connects to fewer hosts at once while most of them do not answer in time."""
        now = time.monotonic()
        if now - self._adapted_at < HANDSHAKE_MS / 1000:
            return
        if self._timed_out_lately > self._connected_lately:
            self._at_once = max(LEAST_AT_ONCE, self._at_once // 2)
        else:
            self._at_once = min(MOST_AT_ONCE, self._at_once * 2)
        self._connected_lately = self._timed_out_lately = 0
        self._adapted_at = now

    def _open(self, link: _Link) -> None:
        """Connects with the next key."""
        endpoint, link.agent_key = link.endpoint, link.untried.pop(0)
        self._connected[endpoint.request_url] = link
        self._opening.add(link)
        sub = self._sub_of(link.agent_key)
        for one in (self._router, sub):
            # If set, events of reconnects to IPv4 name another endpoint: [::ffff:...].
            one.setsockopt(zmq.IPV6, ":" in endpoint.address)
            one.setsockopt(zmq.CURVE_SERVERKEY, link.agent_key)
        # Never the same id twice: libzmq aborts the process if a new connection has the id of one
        # that is still being closed.
        link.route = f"{next(self._connections)} {endpoint.host}".encode()
        self._router.setsockopt(zmq.CONNECT_ROUTING_ID, link.route)
        self._router.connect(endpoint.request_url)
        sub.connect(endpoint.update_url)

    def disconnect(self, endpoint: AnyEndpoint) -> None:
        link = self._links.pop(endpoint.host)
        for unconnected in (self._disconnected, self._waiting):
            if link in unconnected:
                unconnected.remove(link)
                return
        self._close(link)

    def _close(self, link: _Link) -> None:
        link.route = b""
        self._opening.discard(link)
        self._connected.pop(link.endpoint.request_url, None)
        self._router.disconnect(link.endpoint.request_url)
        self._sub_of(link.agent_key).disconnect(link.endpoint.update_url)

    def _try_next_key(self, link: _Link) -> Iterator[ConnectionEvent]:
        """The agent has ended the handshake: the key was wrong, or it was killed."""
        if link.untried:
            self._reconnect_in(link, NEXT_KEY_S)
            link.phase = _Phase.TRYING
            return
        self._reconnect_in(link, RECONNECT_S)
        endpoint = link.endpoint
        error = gone_meanwhile(endpoint) if endpoint.key else no_key_fits(endpoint, self._keys)
        yield ConnectionFailed(endpoint.host, error)

    def _reconnect_in(self, link: _Link, seconds: float) -> None:
        """Closes now and connects later: after a refusal, libzmq does not retry by itself."""
        self._close(link)
        link.phase = _Phase.FAILED
        link.retry_at = time.monotonic() + seconds
        self._disconnected.append(link)

    def _reconnect_due(self) -> None:
        now = time.monotonic()
        for link in [link for link in self._disconnected if link.retry_at <= now]:
            self._disconnected.remove(link)
            link.untried = link.untried or self._keys.candidates(link.endpoint)
            self._waiting.append(link)
        self._adapt()
        self._open_waiting()

    def is_up(self, host: str) -> bool:
        link = self._links.get(host)
        return link is not None and link.phase is _Phase.UP

    def send(self, host: str, request: wire.Request) -> bool:
        link = self._links.get(host)
        if link is None or link.phase is not _Phase.UP:
            return False
        try:
            self._router.send_multipart([link.route, wire.to_frame(request)], zmq.NOBLOCK)
        except zmq.ZMQError:
            return False
        return True

    def wait(self, milliseconds: int) -> Iterator[ConnectionEvent]:
        ready = dict(self._poller.poll(milliseconds))
        self._reconnect_due()
        if self._monitor in ready:
            yield from self._socket_events()
        subs = list(self._subs.items())
        for _, (_, monitor) in subs:
            if monitor in ready:
                yield from self._refused_updates(monitor)
        until = time.monotonic() + DRAIN_S
        if self._router in ready:
            yield from self._responses(until)
        for key, (sub, _) in subs:
            if sub in ready:
                yield from self._updates(key, sub, until + DRAIN_S)

    def _socket_events(self) -> Iterator[ConnectionEvent]:
        while self._monitor.poll(0):
            event = recv_monitor_message(self._monitor)
            link = self._connected.get(event["endpoint"].decode())
            if link is not None:
                kind, value = zmq.Event(event["event"]), int(event["value"])
                if kind != zmq.Event.CONNECTED:
                    self._opening.discard(link)
                yield from self._socket_event(link, kind, value)

    def _refused_updates(self, monitor: zmq.Socket[bytes]) -> Iterator[ConnectionEvent]:
        """Handles refusals by a SUB socket only; the ROUTER's monitor reports its own."""
        while monitor.poll(0):
            url = recv_monitor_message(monitor)["endpoint"].decode()
            links = (one for one in self._connected.values() if one.endpoint.update_url == url)
            link = next(links, None)
            if link is not None and link.phase is _Phase.UP:
                link.untried = [link.agent_key]
                self._reconnect_in(link, NEXT_KEY_S)
                error = not_admitted(link.endpoint, self._pair)
                yield ConnectionFailed(link.endpoint.host, error)

    def _socket_event(self, link: _Link, event: zmq.Event, value: int) -> Iterator[ConnectionEvent]:
        endpoint = link.endpoint
        before, link.phase = link.phase, _Phase.TRYING
        if event == zmq.Event.HANDSHAKE_SUCCEEDED:
            link.phase = _Phase.UP
            self._connected_lately += 1
            self._keys.confirm(endpoint, link.agent_key)
            key = link.agent_key
            whose: AgentKey = "own" if key == self._pair.public else "other"
            yield Connected(endpoint.host, key=key, whose=whose)
        elif event == zmq.Event.CONNECTED:
            link.phase = _Phase.ACCEPTED
        elif event == zmq.Event.HANDSHAKE_FAILED_AUTH:
            link.untried = [link.agent_key]  # the right one, and we may be admitted later
            self._reconnect_in(link, RECONNECT_S)
            yield ConnectionFailed(endpoint.host, not_admitted(endpoint, self._pair))
        elif event == zmq.Event.HANDSHAKE_FAILED_PROTOCOL:
            self._reconnect_in(link, RECONNECT_S)
            yield ConnectionFailed(endpoint.host, not_an_agent(endpoint))
        elif event == zmq.Event.HANDSHAKE_FAILED_NO_DETAIL and timed_out(value):
            link.untried = []  # no key was refused
            self._timed_out_lately += 1
            self._reconnect_in(link, RECONNECT_S)
            yield ConnectionFailed(endpoint.host, unanswered(endpoint))
        elif event == zmq.Event.HANDSHAKE_FAILED_NO_DETAIL:
            yield from self._try_next_key(link)
        elif event == zmq.Event.DISCONNECTED and before in (_Phase.UP, _Phase.ACCEPTED):
            link.untried = [link.agent_key] if before is _Phase.UP else []
            self._reconnect_in(link, NEXT_KEY_S if before is _Phase.UP else RECONNECT_S)
            describe = disconnected if before is _Phase.UP else not_an_agent
            yield ConnectionFailed(endpoint.host, stopped(endpoint) or describe(endpoint))
        elif before is _Phase.TRYING:
            yield ConnectionFailed(endpoint.host, stopped(endpoint) or absent(endpoint))
        else:  # a retry after a failure that was already reported
            link.phase = before

    def _responses(self, until: float) -> Iterator[ConnectionEvent]:
        for frames in _drain(self._router, until):
            host = frames[0].partition(b" ")[2].decode()
            link = self._links.get(host)
            if link is not None and link.route == frames[0] and len(frames) == 2:
                try:
                    response = wire.decode_response(wire.from_frame(frames[1]))
                except wire.WireError:
                    yield ConnectionFailed(host, incompatible(host))
                    continue
                yield ResponseReceived(host, response)

    def _updates(
        self, key: bytes, sub: zmq.Socket[bytes], until: float
    ) -> Iterator[ConnectionEvent]:
        for frames in _drain(sub, until):
            try:
                yield UpdateReceived(wire.decode_update(wire.from_frame(frames[0])), key)
            except wire.WireError:
                continue  # shows as a gap in the numbers

    def close(self) -> None:
        self._router.disable_monitor()
        for sub, _ in self._subs.values():
            sub.disable_monitor()
        self._context.destroy(linger=0)


def _drain(one: zmq.Socket[bytes], until: float) -> Iterator[list[bytes]]:
    """Yields what has arrived; after `until`, the rest stays in the socket."""
    while time.monotonic() < until:
        try:
            yield one.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return


_STOPPED: Final = "T"
_TRACED: Final = "t"
_ENDED_BY_PEER: Final = frozenset((errno.EPIPE, errno.ECONNRESET, errno.ECONNABORTED))


def timed_out(error_number: int) -> bool:
    """Whether a handshake failed because nobody answered; otherwise the other side ended it."""
    return error_number not in _ENDED_BY_PEER


def stopped(endpoint: Endpoint) -> FrtopError | None:
    """The error if this is an agent of this host whose process is stopped, else None."""
    card = _card(endpoint)
    state = _state(card)
    if card is None or state not in (_STOPPED, _TRACED):
        return None
    if state == _STOPPED:
        return Unreachable(
            f"the agent on {endpoint.host} (pid {card.pid}) is stopped by a signal",
            f"resume it: kill -CONT {card.pid}",
        )
    return Unreachable(
        f"the agent on {endpoint.host} (pid {card.pid}) is held by a debugger or tracer",
        f"end that program: `grep TracerPid /proc/{card.pid}/status` prints its pid",
    )


def unanswered(endpoint: Endpoint) -> FrtopError:
    """The error for an agent that accepted a connection but did not answer in time."""
    error = stopped(endpoint)
    if error is not None:
        return error
    card = _card(endpoint)
    if card is None:
        return Unreachable(
            f"the agent on {endpoint.host} accepts connections but does not answer: it hangs or is"
            " stopped",
            f"`frtop diagnose` on that host shows which, and what to type; to see who listens:"
            f" `ss -ltnp 'sport = :{endpoint.ask}'`",
        )
    return Unreachable(
        f"the agent on {endpoint.host} (pid {card.pid}, state {_state(card) or 'unknown'}) accepts"
        " connections but does not answer: it hangs, or gets no CPU time",
        f"wait, or end it: kill -9 {card.pid}; the ranks keep running, and a new agent starts",
    )


def _card(endpoint: Endpoint) -> Announcement | None:
    """The card of the agent that listens there, if it is one of ours on this host."""
    try:
        cards = find_agents(folder())
    except FolderError:
        return None
    here = PidNamespace.here().inode
    local = is_loopback(endpoint.address)
    for card in cards:
        if not card.in_reach or card.ask != endpoint.ask or card.pid_namespace not in (0, here):
            continue
        if local or card.public_key.encode() == endpoint.key or card.address == endpoint.address:
            return card
    return None


def _state(card: Announcement | None) -> str:
    """The letter of its state in /proc, "" if unknown."""
    found = pid_stat.read(f"/proc/{card.pid}") if card is not None else None
    return found.state if found is not None else ""
