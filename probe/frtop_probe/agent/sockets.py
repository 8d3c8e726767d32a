"""The agent's two sockets, encrypted and bounded: updates (PUB) and requests (ROUTER)."""

from __future__ import annotations

import asyncio
import errno
import math
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


@dataclass(frozen=True, slots=True)
class AgentSockets:
    """Open sockets. `address` reaches them from this host; `pub` and `ask` are their ports."""

    rights: KeyRights
    context: zmq.asyncio.Context
    authenticator: zmq.auth.asyncio.AsyncioAuthenticator
    updates: zmq.asyncio.Socket
    requests: zmq.asyncio.Socket
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
        return AgentSockets(
            rights, context, authenticator, updates, requests, address, port, port + 1
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
    for socket in (updates, requests):
        socket.curve_server = True  # before bind: earlier connections would be unencrypted
        socket.curve_secretkey = pair.secret
        socket.curve_publickey = pair.public
        socket.zap_domain = DOMAIN.encode()
        socket.maxmsgsize = MAX_REQUEST
        socket.handshake_ivl = 5000  # a client that sends nothing must not hold a connection
        socket.heartbeat_ivl = 5000  # operators vanish with their laptops
        socket.heartbeat_timeout = 20000
        socket.ipv6 = ":" in bind
        socket.linger = 0
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
