"""Connections that bring nothing over: what a rank sent, and the other side never acknowledged.

The kernel of each host knows it, whoever holds the GIL: how often the oldest bytes were sent
again. Reading it asks nothing of the process and touches no network.
"""

from __future__ import annotations

import ipaddress
import os
import sys
from collections.abc import Iterable, Iterator
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
_RETRANSMITS: Final = "01"


@dataclass(frozen=True, slots=True)
class Row:
    """One established connection of a host. Addresses are texts, ports apart."""

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
        self._rows: dict[str, tuple[Row, ...]] = {}

    def of(self, pid: int) -> tuple[tuple[wire.Link, ...], tuple[str, ...]]:
        """The dead connections of a process, and its host's addresses that have any."""
        rows = self._table(pid)
        addresses = sorted({row.local for row in rows if not _is_loopback(row.local)})
        dead = [row for row in rows if row.again >= AGAIN and row.queued]
        if dead:
            own = self._inodes(pid)
            dead = [row for row in dead if row.inode in own]
        links = tuple(
            wire.Link(
                _joined(row.local, row.local_port),
                _joined(row.remote, row.remote_port),
                row.queued,
                row.again,
            )
            for row in sorted(dead, key=lambda row: -row.again)[:MAX_LINKS]
        )
        return links, tuple(addresses[:MAX_ADDRESSES])

    def _table(self, pid: int) -> tuple[Row, ...]:
        place = f"{self._proc}/{pid}"
        try:
            space = os.readlink(f"{place}/ns/net")  # noqa: PTH115 - no file, a name
        except OSError:
            return ()
        if space not in self._rows:
            texts = (_read(f"{place}/net/{name}") for name in ("tcp", "tcp6"))
            self._rows[space] = tuple(row for text in texts for row in parse(text.splitlines()))
        return self._rows[space]

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


def parse(lines: Iterable[str]) -> Iterator[Row]:
    """The established connections in `/proc/PID/net/tcp` or `tcp6`; other lines are skipped."""
    for line in lines:
        fields = line.split()
        if len(fields) < 10 or fields[3] != _ESTABLISHED:
            continue
        try:
            local, local_port = _address(fields[1])
            remote, remote_port = _address(fields[2])
            timer = fields[5].partition(":")[0]
            again = int(fields[6], 16) if timer == _RETRANSMITS else 0
            queued = int(fields[4].partition(":")[0], 16)
            inode = int(fields[9])
        except ValueError:
            continue
        yield Row(local, local_port, remote, remote_port, queued, again, inode)


def _address(text: str) -> tuple[str, int]:
    """`0A004D0A:91A1` as `10.77.0.10`, 37281: words in the machine's own order of bytes."""
    host, _, port = text.partition(":")
    if len(host) not in (8, 32):
        raise ValueError(text)
    words = (int(host[at : at + 8], 16) for at in range(0, len(host), 8))
    packed = b"".join(word.to_bytes(4, sys.byteorder) for word in words)
    found = ipaddress.ip_address(packed)
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return str(found), int(port, 16)


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
