"""Which hosts the operator means: `local`, `node[0-7]`, `node3:7700`, several of them."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from frtop_tui.errors import UnknownHost, UsageError

LOCAL: Final = "local"
DEFAULT_PORT: Final = 7677
"""Updates come from this port of a host; the next one takes requests."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an agent should be. `address` is numeric, so that socket events name it."""

    name: str
    address: str
    pub: int
    ask: int

    @property
    def updates(self) -> str:
        return f"tcp://{self._bracketed}:{self.pub}"

    @property
    def requests(self) -> str:
        return f"tcp://{self._bracketed}:{self.ask}"

    @property
    def _bracketed(self) -> str:
        return f"[{self.address}]" if ":" in self.address else self.address


def expand(specs: Sequence[str]) -> tuple[str, ...]:
    """Host names, or `host:port`, that the operator's words stand for, each once.

    Raises:
        UsageError: not a host list.
    """
    names: dict[str, None] = {}
    for spec in specs:
        hosts, colon, port = spec.rpartition(":")
        if not colon or not port.isdigit():
            hosts, port = spec, ""
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
    """The place behind one name. Asks the resolver, so it may take a while.

    Raises:
        UnknownHost: the name does not resolve.
        UsageError: the port is none.
    """
    host, _, port = name.partition(":")
    number = int(port) if port else DEFAULT_PORT
    if not 0 < number < 65535:
        raise UsageError(f"{number} is no port", "ports are 1 to 65534 (the next one is used too)")
    try:
        found = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UnknownHost(
            f"host name {host!r} does not resolve ({getattr(error, 'strerror', None) or error})",
            "check the name, or use the address",
        ) from error
    return Place(name, str(found[0][4][0]), number, number + 1)
