"""The agent's two sockets, encrypted and bounded: updates (PUB) and requests (ROUTER)."""

from __future__ import annotations

import asyncio
import errno
import math
import resource
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import zmq
import zmq.asyncio
import zmq.auth.asyncio

from frtop_probe.agent.key_rights import KeyRights
from frtop_probe.agent.options import PAIRS, Options
from frtop_probe.agent.rights import Operator
from frtop_probe.keys import KeyPair

DOMAIN: Final = "frtop"
MAX_REQUEST: Final = 64 * 1024
MAX_UPDATES_QUEUED: Final = 64
"""Per operator: half a minute of updates; an operator that lags further asks for the full state
anyway."""
MAX_RESPONSES_QUEUED: Final = 16
"""Per connection, if the operator does not read: four times `MAX_PENDING` of the handler."""
_RESERVE: Final = 4
"""One descriptor in so many is not for connections: without any, no rank can be read."""
_EVENT: Final = struct.Struct("=HI")


class PortProblem(Exception):
    """No port can be opened; `next` says what the user can do."""

    def __init__(self, text: str, next_step: str) -> None:
        super().__init__(f"{text}\n{next_step}")
        self.text = text
        self.next = next_step


class _CredentialsProvider:
    """Called by ZAP: decides which public keys may connect."""

    def __init__(self, rights: KeyRights) -> None:
        self._rights = rights

    async def callback(self, domain: str, key: bytes) -> bool:  # noqa: ARG002 - ZAP's signature
        return await self._rights.admits(key)


class _Guard:
    """Shuts connections for which there is no room, before anybody has proved a key on them.

    A connection gets the lowest free descriptor, so a high one says how many there are. libzmq
    knows no limit. `handshake_ivl` makes room again.
    """

    def __init__(self, context: zmq.asyncio.Context, guarded: zmq.asyncio.Socket) -> None:
        self._guarded = guarded
        address = f"inproc://accepted-{id(guarded)}"
        guarded.monitor(address, zmq.EVENT_ACCEPTED)
        self._events = context.socket(zmq.PAIR)
        self._events.linger = 0
        self._events.rcvhwm = 0  # libzmq waits for room, and holds a lock that we need to close it
        self._events.connect(address)
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            event, _ = await self._events.recv_multipart()
            _, descriptor = _EVENT.unpack(event)
            most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            if descriptor >= most - most // _RESERVE:
                with suppress(OSError):  # it has just ended
                    _shut(descriptor)

    def close(self) -> None:
        self._task.cancel()
        self._guarded.disable_monitor()
        self._events.close()


def _shut(descriptor: int) -> None:
    """Shuts a connection; libzmq then closes the descriptor."""
    connection = socket.socket(fileno=descriptor)
    try:
        if connection.family in (socket.AF_INET, socket.AF_INET6):
            connection.shutdown(socket.SHUT_RDWR)
    finally:
        connection.detach()


@dataclass(frozen=True, slots=True)
class AgentSockets:
    """Open sockets. `address` reaches them from this host; `pub` and `ask` are their ports."""

    rights: KeyRights
    context: zmq.asyncio.Context
    authenticator: zmq.auth.asyncio.AsyncioAuthenticator
    updates: zmq.asyncio.Socket
    requests: zmq.asyncio.Socket
    guards: tuple[_Guard, ...]
    address: str
    pub: int
    ask: int

    @property
    def last_sign(self) -> float:
        """Connections send nothing but requests."""
        return -math.inf

    def publish(self, frame: bytes) -> None:
        """Sends an update: PUB drops messages instead of blocking, so this completes at once."""
        self.updates.send(frame)

    async def receive(self) -> tuple[Operator, bytes]:
        """Waits for a request from an admitted connection."""
        while True:
            try:
                frames = await self.requests.recv_multipart(copy=False)
            except zmq.ZMQError:
                await asyncio.sleep(0.05)  # a message that cannot be received is lost
                continue
            if len(frames) != 2:
                continue
            with suppress(zmq.ZMQError):  # not from an admitted connection
                # The authenticator sets it to the public key in z85.
                key = str(frames[1].get("User-Id")).encode()
                return Operator(frames[0].bytes, key), frames[1].bytes

    async def send(self, operator: Operator, frame: bytes) -> None:
        """Sends a response; the operator may have left."""
        with suppress(zmq.ZMQError):
            await self.requests.send_multipart([operator.connection, frame])

    def close(self) -> None:
        """Closes the sockets; pending messages get 0.3 s to leave."""
        for guard in self.guards:
            guard.close()
        self.updates.close(linger=300)
        self.requests.close(linger=300)
        self.authenticator.stop()
        self.context.term()


def open_sockets(options: Options, pair: KeyPair) -> AgentSockets:
    """Opens both sockets. Needs a running event loop.

    Raises:
        PortProblem: the ports are taken, or the address is not one of this host.
    """
    context = zmq.asyncio.Context(io_threads=1)
    authenticator = zmq.auth.asyncio.AsyncioAuthenticator(context)
    rights = KeyRights(pair, read_only=options.read_only)
    authenticator.start()  # first: without it, sockets admit everybody
    authenticator.configure_curve_callback(
        domain=DOMAIN, credentials_provider=_CredentialsProvider(rights)
    )
    for port in options.pairs:
        updates, requests = _make_sockets(context, pair, options.bind)
        try:
            updates.bind(f"tcp://{_bracketed(options.bind)}:{port}")
            requests.bind(f"tcp://{_bracketed(options.bind)}:{port + 1}")
        except zmq.ZMQError as error:
            updates.close(linger=0)
            requests.close(linger=0)
            if error.errno == errno.EADDRINUSE:
                continue
            authenticator.stop()
            context.term()
            raise _problem(error, options, port) from error
        address = _reachable(options.bind)
        guards = _Guard(context, updates), _Guard(context, requests)
        return AgentSockets(
            rights, context, authenticator, updates, requests, guards, address, port, port + 1
        )
    authenticator.stop()
    context.term()
    raise _taken(options)


def _make_sockets(
    context: zmq.asyncio.Context, pair: KeyPair, bind: str
) -> tuple[zmq.asyncio.Socket, zmq.asyncio.Socket]:
    updates = context.socket(zmq.PUB)
    requests = context.socket(zmq.ROUTER)
    protect(updates, requests, pair, bind)
    return updates, requests


def protect(updates: zmq.Socket[Any], requests: zmq.Socket[Any], pair: KeyPair, bind: str) -> None:
    """Encrypts and bounds a PUB and a ROUTER socket that are not bound yet."""
    for one in (updates, requests):
        one.curve_server = True  # before bind: earlier connections would be unencrypted
        one.curve_secretkey = pair.secret
        one.curve_publickey = pair.public
        one.zap_domain = DOMAIN.encode()
        one.maxmsgsize = MAX_REQUEST
        one.handshake_ivl = 5000  # a client that sends nothing must not hold a connection
        one.heartbeat_ivl = 5000  # operators vanish with their laptops
        one.heartbeat_timeout = 20000
        one.ipv6 = ":" in bind
        one.linger = 0
    updates.sndhwm = MAX_UPDATES_QUEUED
    requests.sndhwm = requests.rcvhwm = MAX_RESPONSES_QUEUED
    # With a handover, a client that chose another operator's connection id would receive that
    # operator's responses.
    requests.router_handover = False


def _bracketed(bind: str) -> str:
    return f"[{bind}]" if ":" in bind else bind


def _reachable(bind: str) -> str:
    return {"*": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(bind, bind)  # noqa: S104


def _problem(error: zmq.ZMQError, options: Options, port: int) -> PortProblem:
    if error.errno in (errno.EADDRNOTAVAIL, errno.ENODEV, errno.EINVAL):
        return PortProblem(
            f"{options.bind} is not an address of this host",
            "set FRTOP_BIND (or --bind) to one that `ip address` shows, or leave it out",
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return PortProblem(
            f"port {port} needs privileges that this user does not have", "choose a port above 1023"
        )
    return PortProblem(
        f"cannot listen on {options.bind}:{port}: {error}",
        "try another FRTOP_PORT or FRTOP_BIND",
    )


def _taken(options: Options) -> PortProblem:
    return PortProblem(
        f"no free pair of ports from {options.port} to {options.port + 2 * PAIRS - 1}",
        "choose another with FRTOP_PORT, or see which programs listen: `ss -ltnp`",
    )
