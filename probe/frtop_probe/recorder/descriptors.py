"""File descriptors of the recorder, in a process whose program may close any descriptor.

The next file that the program opens gets the same number. So each use first checks that the
number still belongs to our file; otherwise it leaves it alone, even when closing.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress

FileId = tuple[int, int]


def file_id(descriptor: int) -> FileId | None:
    """Returns device and inode of an open file; None if the number is not open."""
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino


class OwnedDescriptor:
    """A descriptor that the recorder opened."""

    __slots__ = ("_file_id", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self._file_id = file_id(number)

    @property
    def is_ours(self) -> bool:
        return self._file_id is not None and file_id(self.number) == self._file_id

    def close(self) -> None:
        """Closes it once, unless the number now belongs to another file."""
        if self.is_ours:
            self._file_id = None
            with suppress(OSError):
                os.close(self.number)


class OwnedSocket:
    """A non-blocking socket that only `close` closes."""

    __slots__ = ("_owned", "socket")

    def __init__(self, created: socket.socket) -> None:
        self.socket = created
        self._owned = OwnedDescriptor(created.fileno())
        created.setblocking(False)

    @property
    def is_ours(self) -> bool:
        return self._owned.is_ours

    def close(self) -> None:
        self.socket.detach()  # otherwise its finalizer would close any file with the number
        self._owned.close()
