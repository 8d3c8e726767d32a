"""Turns host lists as operators write them into addresses: `local`, `node[0-7]`, `node3:7700`."""

from __future__ import annotations

import ipaddress
import queue
import re
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from frtop_probe.agent.options import DEFAULT_PORT
from frtop_probe.proc import daemon_thread
from frtop_tui.connect.pipes import LAUNCHERS
from frtop_tui.errors import FrtopError, UnknownHost, UsageError
from frtop_tui.job.naming import MAX_HOSTS, typed, unfolded_hosts

LOCAL: Final = "local"
WORKERS: Final = 16
"""Names resolved in parallel; this many more workers start if all of them are slow."""
MAX_WORKERS: Final = 256
SLOW_S: Final = 1.0


class Endpoint(Struct, frozen=True):
    """Where an agent should listen. `address` is numeric, as in socket events.

    `host` is the name the operator uses, unique among endpoints. `key` is the public key
    that a local agent announced, b"" for a remote one.
    """

    host: str
    address: str
    pub: int
    ask: int
    key: bytes = b""

    @property
    def update_url(self) -> str:
        return f"tcp://{self._bracketed}:{self.pub}"

    @property
    def request_url(self) -> str:
        return f"tcp://{self._bracketed}:{self.ask}"

    @property
    def address_and_port(self) -> str:
        """As `--connect` takes it: `10.0.0.3:7677`."""
        return f"{self._bracketed}:{self.pub}"

    @property
    def _bracketed(self) -> str:
        return f"[{self.address}]" if ":" in self.address else self.address


VIA: Final = "via "
"""How `shown` of a pipe begins whose command is the operator's own."""


class PipeEndpoint(Struct, frozen=True):
    """A host reached through a command that gives a shell there, such as `ssh node3 sh`.

    `commands` are the ways to it, the next one for use if one is refused. `shown` describes the
    first in a few words. Endpoints with a `task` share the process of their first command: a step
    of srun with one task on each host; or a shell on a host on the way, which runs `onward` for
    each. `crowded`: many at once go through one host on the way, called `through` if its name is
    known. `has_python`: the command is stage 0 already, and takes no script.
    """

    host: str
    commands: tuple[tuple[str, ...], ...]
    shown: str
    task: int | None = None
    crowded: bool = False
    through: str = ""
    onward: tuple[str, ...] = ()
    has_python: bool = False

    @property
    def request_url(self) -> str:
        """What no other endpoint has."""
        return f"pipe:{self.host}"

    @property
    def address_and_port(self) -> str:
        """How it is reached, for people."""
        return self.shown


def expand(specs: Sequence[str]) -> tuple[str, ...]:
    """Expands host lists into names, or `host:port`, each once.

    Raises:
        UsageError: a spec is not a host list, or has an invalid port.
    """
    names: dict[str, None] = {}
    for spec in specs:
        if spec.startswith(tuple(LAUNCHERS)):
            raise UsageError(f"{spec} is reached through a shell", f"--ssh {typed(spec)}")
        hosts, port = _split(spec)
        _port(port)
        if ":" in hosts:  # an address; host lists know no colons
            names[f"[{hosts}]:{port}" if port else hosts] = None
            continue
        try:
            nodes = unfolded_hosts(hosts)
        except ValueError as error:
            raise UsageError(
                f"{spec[:200]!r} is not a host list ({str(error)[:200]})",
                "quote it and write it like this: --connect 'node[0-3],node9:7700'",
            ) from error
        for node in nodes:
            names[f"{node}:{port}" if port else node] = None
        if len(names) > MAX_HOSTS:
            raise UsageError(f"more than {MAX_HOSTS:,} hosts were named", "name fewer")
    if not names:
        raise UsageError("no host was named", "name hosts: --connect 'node[0-7]'")
    return tuple(names)


def resolve(name: str) -> Endpoint:
    """Resolves one name of `expand`; blocks for as long as the system's resolver does.

    Raises:
        UnknownHost: the name does not resolve.
        UsageError: the port is invalid.
    """
    host, number = address_of(name)
    try:
        found = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UnknownHost(
            f"host name {host!r} does not resolve ({getattr(error, 'strerror', None) or error})",
            "check the name, or give the address: --connect 10.0.0.3",
        ) from error
    return Endpoint(name, str(found[0][4][0]), number, number + 1)


def address_of(name: str) -> tuple[str, int]:
    """The host and the port in one name of `expand`; raises `UsageError` for a bad port."""
    host, port = _split(name)
    return host, _port(port)


def is_loopback(address: str) -> bool:
    """Whether a numeric address is this host itself."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


class Resolver:
    """Resolves names in parallel; never blocks its owner or the exit of the program."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._todo: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._resolved: queue.SimpleQueue[tuple[str, Endpoint | FrtopError]] = queue.SimpleQueue()
        self._unresolved: set[str] = set()
        self._workers: list[threading.Thread] = []
        self._started_at = 0.0
        for name in names:
            self.resolve(name)

    def resolve(self, name: str) -> None:
        """Resolves a name, for the first time or again: its address may have changed."""
        if name in self._unresolved:
            return
        self._unresolved.add(name)
        self._todo.put(name)
        self._start_workers()

    def resolved(self) -> Iterator[tuple[str, Endpoint | FrtopError]]:
        """Gives names resolved since the last call, each with its endpoint or an error."""
        if not self._todo.empty() and time.monotonic() - self._started_at > SLOW_S:
            # All workers are waiting for slow names: other names should not wait.
            self._start_workers(WORKERS)
        while not self._resolved.empty():
            name, endpoint = self._resolved.get()
            self._unresolved.discard(name)
            yield name, endpoint

    def _start_workers(self, more: int = 0) -> None:
        self._workers = [worker for worker in self._workers if worker.is_alive()]
        count = min(len(self._unresolved), MAX_WORKERS, max(WORKERS, len(self._workers) + more))
        while len(self._workers) < count:
            self._workers.append(daemon_thread.start(self._work, "frtop resolver"))
            self._started_at = time.monotonic()

    def _work(self) -> None:
        while True:
            try:
                name = self._todo.get_nowait()
            except queue.Empty:
                return
            try:
                self._resolved.put((name, resolve(name)))
            except FrtopError as error:
                self._resolved.put((name, error))


def _split(spec: str) -> tuple[str, str]:
    """Splits host and port, "" for none; takes `[::1]:7700` and bare IPv6 addresses too."""
    bracketed = re.fullmatch(r"\[([0-9A-Fa-f:.%\w]*:[0-9A-Fa-f:.%\w]*)\](?::(\w+))?", spec)
    if bracketed:
        return bracketed[1], bracketed[2] or ""
    host, colon, port = spec.rpartition(":")
    if not colon or ":" in host:
        return spec, ""
    return host, port


def _port(text: str) -> int:
    number = int(text) if text.isdecimal() and len(text) < 6 else (0 if text else DEFAULT_PORT)
    if not 0 < number < 65535:
        raise UsageError(
            f"{text!r} is not a port", "use 1 to 65534: the agent uses the next port too"
        )
    return number
