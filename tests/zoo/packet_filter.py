"""Drops all incoming packets of a connection, as if its interface were down, without root."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final

_SO_ATTACH_FILTER: Final = 26
_RETURN: Final = 0x06


def drop_incoming(connection: socket.socket) -> None:
    """Makes the kernel drop all packets for this connection, including acknowledgements."""
    program = ctypes.create_string_buffer(struct.pack("HBBI", _RETURN, 0, 0, 0))
    filters = struct.pack("HP", 1, ctypes.addressof(program))
    connection.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, filters)


def drop_all_incoming() -> None:
    """Does so for every TCP connection of this process."""
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if not entry.readlink().name.startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(entry.name))) as one:
                if one.type == socket.SOCK_STREAM and one.family in (
                    socket.AF_INET,
                    socket.AF_INET6,
                ):
                    drop_incoming(one)
