"""The agent's two sockets: who may come in, and how much they may ask of it."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Final

import zmq
import zmq.asyncio
import zmq.auth.asyncio

from frtop_probe.agent.admission import Admission
from frtop_probe.agent.options import Options
from frtop_probe.keys import KeyPair

DOMAIN: Final = "frtop"
PAIRS: Final = 64
"""So many pairs of ports are tried when the default one is taken."""
MAX_ASK: Final = 64 * 1024
MAX_UPDATES_QUEUED: Final = 64
"""Per operator: half a minute of updates; one that is further behind asks anew anyway."""
MAX_ANSWERS_QUEUED: Final = 16
"""Per connection, kept for operators that do not read: four times what is owed to one."""


class PortProblem(Exception):
    """No port to listen on; `next` says what to do about it."""

    def __init__(self, text: str, next_step: str) -> None:
        super().__init__(f"{text}\n{next_step}")
        self.text = text
        self.next = next_step


class _Guard:
    """Called back by ZAP: which public keys may come in."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    async def callback(self, domain: str, key: bytes) -> bool:  # noqa: ARG002 - ZAP's signature
        return await self._admission.admits(key)


@dataclass(frozen=True, slots=True)
class Door:
    """Open sockets. `address` reaches them from this host."""

    admission: Admission
    context: zmq.asyncio.Context
    guard: zmq.auth.asyncio.AsyncioAuthenticator
    updates: zmq.asyncio.Socket
    asks: zmq.asyncio.Socket
    address: str
    pub: int
    ask: int

    def close(self) -> None:
        """Gives what was sent a moment to leave, and closes."""
        self.updates.close(linger=300)
        self.asks.close(linger=300)
        self.guard.stop()
        self.context.term()


def open_door(options: Options, pair: KeyPair) -> Door:
    """Binds both sockets. Needs a running event loop.

    Raises:
        PortProblem: the ports are taken, or the address is not one of this host.
    """
    context = zmq.asyncio.Context(io_threads=1)
    guard = zmq.auth.asyncio.AsyncioAuthenticator(context)
    admission = Admission(pair, read_only=options.read_only)
    guard.start()  # first: without it sockets would let everybody in
    guard.configure_curve_callback(domain=DOMAIN, credentials_provider=_Guard(admission))
    last = options.port + (2 * PAIRS if options.any_port else 1)
    for port in range(options.port, min(last, 65535), 2):
        updates, asks = _sockets(context, pair, options.bind)
        try:
            updates.bind(f"tcp://{_bracketed(options.bind)}:{port}")
            asks.bind(f"tcp://{_bracketed(options.bind)}:{port + 1}")
        except zmq.ZMQError as error:
            updates.close(linger=0)
            asks.close(linger=0)
            if error.errno == errno.EADDRINUSE:
                continue
            guard.stop()
            context.term()
            raise _problem(error, options, port) from error
        address = _reachable(options.bind)
        return Door(admission, context, guard, updates, asks, address, port, port + 1)
    guard.stop()
    context.term()
    raise _taken(options)


def _sockets(
    context: zmq.asyncio.Context, pair: KeyPair, bind: str
) -> tuple[zmq.asyncio.Socket, zmq.asyncio.Socket]:
    updates = context.socket(zmq.PUB)
    asks = context.socket(zmq.ROUTER)
    for socket in (updates, asks):
        socket.curve_server = True  # before bind: what is accepted earlier is plain
        socket.curve_secretkey = pair.secret
        socket.curve_publickey = pair.public
        socket.zap_domain = DOMAIN.encode()
        socket.maxmsgsize = MAX_ASK
        socket.handshake_ivl = 5000  # a stranger that says nothing holds no connection
        socket.heartbeat_ivl = 5000  # screens vanish with their laptops
        socket.heartbeat_timeout = 20000
        socket.ipv6 = ":" in bind
        socket.linger = 0
    updates.sndhwm = MAX_UPDATES_QUEUED
    asks.sndhwm = asks.rcvhwm = MAX_ANSWERS_QUEUED
    # Ids are ours to give: screens choose none. Whoever chose that of another operator
    # would, with a handover, be sent what the other is owed.
    asks.router_handover = False
    return updates, asks


def _bracketed(bind: str) -> str:
    return f"[{bind}]" if ":" in bind else bind


def _reachable(bind: str) -> str:
    return {"*": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(bind, bind)  # noqa: S104


def _problem(error: zmq.ZMQError, options: Options, port: int) -> PortProblem:
    if error.errno in (errno.EADDRNOTAVAIL, errno.ENODEV, errno.EINVAL):
        return PortProblem(
            f"{options.bind} is no address of this host",
            "set FRTOP_BIND (or --bind) to one of `ip address`, or leave it out",
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return PortProblem(
            f"port {port} needs privileges that this user has not", "choose one above 1023"
        )
    return PortProblem(
        f"cannot listen on {options.bind}:{port}: {error}",
        "try another --port or --bind",
    )


def _taken(options: Options) -> PortProblem:
    if options.any_port:
        return PortProblem(
            f"no free pair of ports from {options.port} to {options.port + 2 * PAIRS - 1}",
            "name another with FRTOP_PORT, or see who listens: `ss -ltnp`",
        )
    return PortProblem(
        f"port {options.port} or {options.port + 1} is taken",
        f"choose another --port, or see who listens: "
        f"`ss -ltnp '( sport = :{options.port} or sport = :{options.port + 1} )'`",
    )
