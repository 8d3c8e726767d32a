"""Connections that bring nothing over: what a rank sent, and the other side never acknowledged.

The kernel of each host knows it, whoever holds the GIL: how often the oldest bytes were sent
again. Reading it asks nothing of the process and touches no network.
"""

from __future__ import annotations

import ipaddress
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from frtop_probe import wire
from frtop_probe.eyes.proc import PROC

MAX_LINKS: Final = 32
MAX_ADDRESSES: Final = 16
AGAIN: Final = 3
"""So often in a row, over more than a second, nothing but a dead link sends the same again."""
_MAX_TABLE: Final = 4 * 1024 * 1024
_MAX_FILES: Final = 65536
_ESTABLISHED: Final = "01"
_RETRANSMITS: Final = "01:"


@dataclass(frozen=True, slots=True)
class Row:
    """One established connection of a host that is dead. Addresses are texts, ports apart."""

    local: str
    local_port: int
    remote: str
    remote_port: int
    queued: int
    again: int
    inode: int


class Tables:
    """The connections of hosts, each table read once; for one moment's looks."""

    def __init__(self, proc: object = PROC) -> None:
        self._proc = str(proc)
        self._told: dict[str, tuple[tuple[str, ...], tuple[Row, ...]]] = {}

    def of(self, pid: int) -> tuple[tuple[wire.Link, ...], tuple[str, ...]]:
        """The dead connections of a process, and its host's addresses that have any."""
        addresses, dead = self._table(pid)
        if dead:
            own = self._inodes(pid)
            dead = tuple(row for row in dead if row.inode in own)
        links = tuple(
            wire.Link(
                _joined(row.local, row.local_port),
                _joined(row.remote, row.remote_port),
                row.queued,
                row.again,
            )
            for row in sorted(dead, key=lambda row: -row.again)[:MAX_LINKS]
        )
        return links, addresses

    def _table(self, pid: int) -> tuple[tuple[str, ...], tuple[Row, ...]]:
        place = f"{self._proc}/{pid}"
        try:
            space = os.readlink(f"{place}/ns/net")  # noqa: PTH115 - no file, a name
        except OSError:
            return (), ()
        if space not in self._told:
            found = [parse(_read(f"{place}/net/{name}").splitlines()) for name in ("tcp", "tcp6")]
            addresses = sorted(
                {one for local, _ in found for one in local if not _is_loopback(one)}
            )
            dead = tuple(row for _, rows in found for row in rows)
            self._told[space] = tuple(addresses[:MAX_ADDRESSES]), dead
        return self._told[space]

    def _inodes(self, pid: int) -> frozenset[int]:
        """The sockets of a process."""
        found = []
        try:
            with os.scandir(f"{self._proc}/{pid}/fd") as entries:
                for entry, _ in zip(entries, range(_MAX_FILES), strict=False):
                    found += _socket(entry.path)
        except OSError:
            pass  # gone, or not ours to see
        return frozenset(found)


def parse(lines: Iterable[str]) -> tuple[set[str], tuple[Row, ...]]:
    """`/proc/PID/net/tcp` or `tcp6`: own addresses with connections, and which of these are dead.

    There may be tens of thousands, at every look: of those that are sound no more is read
    than that. Other lines are skipped.
    """
    local: set[str] = set()
    dead: list[Row] = []
    for line in lines:
        fields = line.split(None, 10)
        if len(fields) < 10 or fields[3] != _ESTABLISHED:
            continue
        local.add(fields[1].partition(":")[0])
        if fields[5].startswith(_RETRANSMITS) and (row := _dead(fields)) is not None:
            dead.append(row)
    return {host for text in local if (host := _host(text))}, tuple(dead)


def _dead(fields: Sequence[str]) -> Row | None:
    (local, _, local_port), (remote, _, remote_port) = (one.partition(":") for one in fields[1:3])
    try:
        queued, again = int(fields[4].partition(":")[0], 16), int(fields[6], 16)
        ports = int(local_port, 16), int(remote_port, 16)
        inode = int(fields[9])
    except ValueError:
        return None
    near, far = _host(local), _host(remote)
    if not near or not far or again < AGAIN or not queued:
        return None
    return Row(near, ports[0], far, ports[1], queued, again, inode)


def _host(text: str) -> str:
    """`0A004D0A` as `10.77.0.10`, words in the machine's own order of bytes; "" for nonsense."""
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


def _joined(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _socket(path: str) -> list[int]:
    try:
        link = os.readlink(path)  # noqa: PTH115 - thousands of them
    except OSError:
        return []
    number = link.removeprefix("socket:[").removesuffix("]")
    return [int(number)] if link.startswith("socket:[") and number.isdecimal() else []


def _read(path: str) -> str:
    """The kernel gives such a file a page at a time."""
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - as `proc.read`
            parts, size = [], 0
            while size < _MAX_TABLE and (part := file.read(65536)):
                parts.append(part)
                size += len(part)
    except OSError:
        return ""
    return b"".join(parts).decode("ascii", "replace")
