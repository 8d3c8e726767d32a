"""Finds dead TCP connections: the kernel resends data that the other side never acknowledges.

The kernel counts the retransmissions of each connection. Reading them needs nothing from the
process and sends nothing over the network.
"""

from __future__ import annotations

import ipaddress
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from frtop_probe import wire
from frtop_probe.proc.kernel_files import read_text

MAX_CONNECTIONS: Final = 32
MAX_ADDRESSES: Final = 16
DEAD_RETRANSMITS: Final = 3
"""Retransmissions in a row, over more than a second, after which a connection counts as dead."""
_MAX_TABLE: Final = 4 * 1024 * 1024
_MAX_FILES: Final = 65536
_ESTABLISHED: Final = "01"
_RETRANSMITS: Final = "01:"


@dataclass(frozen=True, slots=True)
class TcpConnection:
    """A dead established connection, as in the kernel's table. `queued` is in bytes."""

    local: str
    local_port: int
    remote: str
    remote_port: int
    queued: int
    retransmits: int
    inode: int


class ConnectionTables:
    """The TCP tables of network namespaces, each read once, for snapshots taken together."""

    def __init__(self) -> None:
        self._tables: dict[str, tuple[tuple[str, ...], tuple[TcpConnection, ...]]] = {}

    def find_dead(self, pid: int) -> tuple[tuple[wire.DeadConnection, ...], tuple[str, ...]]:
        """The dead connections of a process, and the addresses its host has connections from."""
        addresses, dead = self._table(pid)
        if dead:
            own = _socket_inodes(pid)
            dead = tuple(row for row in dead if row.inode in own)
        found = tuple(
            wire.DeadConnection(
                _format(row.local, row.local_port),
                _format(row.remote, row.remote_port),
                row.queued,
                row.retransmits,
            )
            for row in sorted(dead, key=lambda row: -row.retransmits)[:MAX_CONNECTIONS]
        )
        return found, addresses

    def _table(self, pid: int) -> tuple[tuple[str, ...], tuple[TcpConnection, ...]]:
        folder = f"/proc/{pid}"
        try:
            namespace = os.readlink(f"{folder}/ns/net")  # noqa: PTH115 - a name, not a file
        except OSError:
            return (), ()
        if namespace not in self._tables:
            texts = (read_text(f"{folder}/net/{name}", _MAX_TABLE) for name in ("tcp", "tcp6"))
            tables = [parse(text.splitlines()) for text in texts]
            addresses = sorted(
                {address for local, _ in tables for address in local if not _is_loopback(address)}
            )
            dead = tuple(row for _, rows in tables for row in rows)
            self._tables[namespace] = tuple(addresses[:MAX_ADDRESSES]), dead
        return self._tables[namespace]


def _socket_inodes(pid: int) -> frozenset[int]:
    """Inodes of a process's sockets; none if it has ended or its files are not readable."""
    found = []
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in islice(entries, _MAX_FILES):
                found += _socket_inode(entry.path)
    except OSError:
        pass
    return frozenset(found)


def parse(lines: Iterable[str]) -> tuple[set[str], tuple[TcpConnection, ...]]:
    """Parses `/proc/PID/net/tcp` or `tcp6`; skips other lines.

    Tables have up to tens of thousands of lines and are read for every snapshot, so healthy
    connections are parsed no further than their local address.

    Returns:
        The local addresses that have established connections, and the dead connections.
    """
    local: set[str] = set()
    dead: list[TcpConnection] = []
    for line in lines:
        fields = line.split(None, 10)
        if len(fields) < 10 or fields[3] != _ESTABLISHED:
            continue
        local.add(fields[1].partition(":")[0])
        if fields[5].startswith(_RETRANSMITS) and (row := _parse_dead(fields)) is not None:
            dead.append(row)
    return {host for text in local if (host := parse_address(text))}, tuple(dead)


def _parse_dead(fields: Sequence[str]) -> TcpConnection | None:
    (local, _, local_port), (remote, _, remote_port) = (part.partition(":") for part in fields[1:3])
    try:
        queued, retransmits = int(fields[4].partition(":")[0], 16), int(fields[6], 16)
        ports = int(local_port, 16), int(remote_port, 16)
        inode = int(fields[9])
    except ValueError:
        return None
    near, far = parse_address(local), parse_address(remote)
    if not near or not far or retransmits < DEAD_RETRANSMITS or not queued:
        return None
    return TcpConnection(near, ports[0], far, ports[1], queued, retransmits, inode)


def parse_address(text: str) -> str:
    """`0A004D0A` as `10.77.0.10`: 32-bit words in native byte order; "" when malformed."""
    if len(text) not in (8, 32):
        return ""
    try:
        words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
        packed = b"".join(word.to_bytes(4, sys.byteorder) for word in words)
    except (ValueError, OverflowError):
        return ""
    found = ipaddress.ip_address(packed)
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return str(found)


def _is_loopback(address: str) -> bool:
    return address == "::1" or address.startswith("127.")


def _format(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _socket_inode(path: str) -> list[int]:
    try:
        link = os.readlink(path)  # noqa: PTH115 - thousands of them
    except OSError:
        return []
    number = link.removeprefix("socket:[").removesuffix("]")
    return [int(number)] if link.startswith("socket:[") and number.isdecimal() else []
