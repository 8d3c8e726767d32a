"""Where our own ZeroMQ finds the port of an agent that a host on the way carries to us.

A socket in Linux's abstract namespace: it has a name and no file, so nothing can be left behind,
however frtop ends. It takes connections of this process only.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
from typing import Final

WAITING: Final = 16
_CREDENTIALS: Final = struct.Struct("3i")


class LocalPort:
    """Of one port of one agent. `is_ask`: the one whose failures are those of the host."""

    def __init__(self, host: str, address: str, port: int, *, is_ask: bool) -> None:
        """Listens.

        Raises:
            OSError: there are too many open files.
        """
        self.host = host
        self.address = address
        self.port = port
        self.is_ask = is_ask
        name = f"frtop-{secrets.token_hex(16)}"
        self.url = f"ipc://@{name}"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.socket.bind(f"\0{name}")
            self.socket.listen(WAITING)
            self.socket.setblocking(False)
        except OSError:
            self.socket.close()
            raise

    def accept(self) -> socket.socket | None:
        """A connection of ours, None when there is none; those of others are closed."""
        while True:
            try:
                one, _ = self.socket.accept()
            except OSError:
                return None
            if peer(one) == os.getpid():
                return one
            one.close()

    def close(self) -> None:
        """Takes no more connections."""
        self.socket.close()


def peer(one: socket.socket) -> int:
    """The process that has connected, 0 if it is out of sight."""
    raw = one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid: int = _CREDENTIALS.unpack(raw)[0]
    return pid
