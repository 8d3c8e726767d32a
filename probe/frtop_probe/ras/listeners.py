"""Who listens on a port, by the kernel's tables: nothing is connected to find out.

All NCCL processes of a user share RAS's port (SO_REUSEPORT), and the kernel picks who answers. So
it is known before anybody is asked whether processes of another job listen there, too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from frtop_probe.proc.connections import parse_address, socket_inodes
from frtop_probe.proc.processes import PROC

MAX_TABLE: Final = 8 << 20
MAX_PROCESSES: Final = 65_536
_LISTENS: Final = "0A"
_ANY: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - to connect to, not to bind


@dataclass(frozen=True, slots=True)
class Listener:
    """A listening TCP socket: where to connect to, and its inode."""

    host: str
    port: int
    inode: int


def same_network(pid: int, proc: Path = PROC) -> bool | None:
    """Whether a process is in our network namespace; None where that may not be read."""
    try:
        return (proc / str(pid) / "ns" / "net").readlink() == (
            proc / "self" / "ns" / "net"
        ).readlink()
    except OSError:
        return None


def listeners_on(port: int, proc: Path = PROC) -> tuple[Listener, ...]:
    """All sockets that listen on a port in our network namespace."""
    found: list[Listener] = []
    for name in ("tcp", "tcp6"):
        with suppress(OSError), (proc / "self" / "net" / name).open("rb") as file:
            found += parse_listeners(file.read(MAX_TABLE).decode("ascii", "replace"), port)
    return tuple(found)


def parse_listeners(table: str, port: int) -> list[Listener]:
    """Parses /proc/PID/net/tcp or tcp6; skips all other lines."""
    found = []
    for line in table.splitlines():
        fields = line.split(None, 10)
        if len(fields) < 10 or fields[3] != _LISTENS:
            continue
        text, _, port_text = fields[1].partition(":")
        try:
            if int(port_text, 16) != port:
                continue
            host, inode = parse_address(text), int(fields[9])
        except ValueError:
            continue
        if host:
            found.append(Listener(_ANY.get(host, host), port, inode))
    return found


def owners(inodes: Iterable[int], proc: Path = PROC) -> dict[int, frozenset[int]]:
    """Pids by inode of the processes of this user that have these sockets open."""
    wanted, found = frozenset(inodes), dict[int, set[int]]()
    uid = os.geteuid()
    with suppress(OSError), os.scandir(proc) as entries:
        for entry, _ in zip(entries, range(MAX_PROCESSES), strict=False):
            if not entry.name.isdecimal():
                continue
            with suppress(OSError):
                if entry.stat().st_uid != uid:
                    continue
                for inode in socket_inodes(int(entry.name), proc) & wanted:
                    found.setdefault(inode, set()).add(int(entry.name))
    return {inode: frozenset(pids) for inode, pids in found.items()}
