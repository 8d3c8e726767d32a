"""Descriptors of ours, in a process whose program may close all that it does not know.

The next file that the program opens has the same number then. So before each use we look
whether what is there is still ours, and what is not is left alone, also at the end.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress

Identity = tuple[int, int]


def identity(descriptor: int) -> Identity | None:
    """Device and inode of what is open there, None for nothing."""
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino


class Owned:
    """A descriptor."""

    __slots__ = ("_identity", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self._identity = identity(number)

    @property
    def held(self) -> bool:
        return self._identity is not None and identity(self.number) == self._identity

    def close(self) -> None:
        """Closes it, once, unless something else has its number by now."""
        if self.held:
            self._identity = None
            with suppress(OSError):
                os.close(self.number)


class OwnedSocket:
    """A socket that does not block. It is closed with `close`, and in no other way."""

    __slots__ = ("_owned", "socket")

    def __init__(self, made: socket.socket) -> None:
        self.socket = made
        self._owned = Owned(made.fileno())
        made.setblocking(False)

    @property
    def held(self) -> bool:
        return self._owned.held

    def close(self) -> None:
        self.socket.detach()  # it would close whatever has its number
        self._owned.close()
