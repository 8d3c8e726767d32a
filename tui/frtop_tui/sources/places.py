"""Which hosts the operator means: `local`, `node[0-7]`, `node3:7700`, several of them."""

from __future__ import annotations

import queue
import re
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Final

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException
from msgspec import Struct

from frtop_probe.agent.options import DEFAULT_PORT
from frtop_tui.errors import FrtopError, UnknownHost, UsageError

LOCAL: Final = "local"
AT_ONCE: Final = 16
"""Names that are resolved side by side, and workers that come to help slow ones."""
MOST_WORKERS: Final = 256
SLOW_S: Final = 1.0


class Place(Struct, frozen=True):
    """Where an agent should be. `address` is numeric, so that socket events name it.

    `key` is the public key it announced in our own folder, b"" for one elsewhere.
    """

    name: str
    address: str
    pub: int
    ask: int
    key: bytes = b""

    @property
    def updates(self) -> str:
        return f"tcp://{self._bracketed}:{self.pub}"

    @property
    def requests(self) -> str:
        return f"tcp://{self._bracketed}:{self.ask}"

    @property
    def address_and_port(self) -> str:
        """As it would be named: `--connect 10.0.0.3:7677`."""
        return f"{self._bracketed}:{self.pub}"

    @property
    def _bracketed(self) -> str:
        return f"[{self.address}]" if ":" in self.address else self.address


def expand(specs: Sequence[str]) -> tuple[str, ...]:
    """Host names, or `host:port`, that the operator's words stand for, each once.

    Raises:
        UsageError: not a host list, or not a port.
    """
    names: dict[str, None] = {}
    for spec in specs:
        hosts, port = _split(spec)
        _port(port)
        if ":" in hosts:  # an address; host lists know no colons
            names[f"[{hosts}]:{port}" if port else hosts] = None
            continue
        try:
            nodes = list(NodeSet(hosts, resolver=RESOLVER_NOGROUP))
        except NodeSetException as error:
            raise UsageError(
                f"{spec!r} is no list of hosts ({error})",
                "write it like node[0-7], node3, or node[0-3],node9:7700, in quotes",
            ) from error
        for node in nodes:
            names[f"{node}:{port}" if port else str(node)] = None
    if not names:
        raise UsageError("no host was named", "name one: --connect 'node[0-7]'")
    return tuple(names)


def resolve(name: str) -> Place:
    """The place behind one name of `expand`. Asks the resolver: that may take a while.

    Raises:
        UnknownHost: the name does not resolve.
        UsageError: the port is none.
    """
    host, port = _split(name)
    number = _port(port)
    try:
        found = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UnknownHost(
            f"host name {host!r} does not resolve ({getattr(error, 'strerror', None) or error})",
            "check the name, or use the address",
        ) from error
    return Place(name, str(found[0][4][0]), number, number + 1)


class Resolver:
    """Resolves names side by side, and never keeps its owner, or the exit, waiting."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._todo: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._found: queue.SimpleQueue[tuple[str, Place | FrtopError]] = queue.SimpleQueue()
        self._owed: set[str] = set()
        self._workers: list[threading.Thread] = []
        self._hired_at = 0.0
        for name in names:
            self.resolve(name)

    def resolve(self, name: str) -> None:
        """Looks a name up, again perhaps: its address may have changed."""
        if name in self._owed:
            return
        self._owed.add(name)
        self._todo.put(name)
        self._hire()

    def found(self) -> Iterator[tuple[str, Place | FrtopError]]:
        """What has been resolved since the last call."""
        if not self._todo.empty() and time.monotonic() - self._hired_at > SLOW_S:
            # All of them hang in names that take long: others need not.
            self._hire(AT_ONCE)
        while not self._found.empty():
            name, found = self._found.get()
            self._owed.discard(name)
            yield name, found

    def _hire(self, more: int = 0) -> None:
        self._workers = [worker for worker in self._workers if worker.is_alive()]
        most = min(len(self._owed), MOST_WORKERS, max(AT_ONCE, len(self._workers) + more))
        while len(self._workers) < most:
            # Daemons: the resolver's own timeouts are minutes, and `q` must not wait.
            worker = threading.Thread(target=self._work, name="frtop resolver", daemon=True)
            self._workers.append(worker)
            worker.start()
            self._hired_at = time.monotonic()

    def _work(self) -> None:
        while True:
            try:
                name = self._todo.get_nowait()
            except queue.Empty:
                return
            try:
                self._found.put((name, resolve(name)))
            except FrtopError as error:
                self._found.put((name, error))


def _split(spec: str) -> tuple[str, str]:
    """Host and port, "" if none is named; `[::1]:7700` and bare IPv6 addresses too."""
    bracketed = re.fullmatch(r"\[([0-9A-Fa-f:.%\w]*:[0-9A-Fa-f:.%\w]*)\](?::(\w+))?", spec)
    if bracketed:
        return bracketed[1], bracketed[2] or ""
    host, colon, port = spec.rpartition(":")
    if not colon or ":" in host:
        return spec, ""
    return host, port


def _port(text: str) -> int:
    number = int(text) if text.isdecimal() else (0 if text else DEFAULT_PORT)
    if not 0 < number < 65535:
        raise UsageError(f"{text!r} is no port", "ports are 1 to 65534 (the next one is used too)")
    return number
