"""Messages between the agent of all users and the process that reads one user's ranks.

Both ends of a socket pair: four bytes of length, then msgpack. What comes from a user's process
is bounded and checked like a message from the network: it has that user's rights, not root's.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Final

import msgspec
from msgspec import Struct

from frtop_probe import wire

MAX_BYTES: Final = wire.MAX_MESSAGE + 4096
WINDOW_S: Final = 10.0
MAX_MESSAGES: Final = 2_000
"""In a window. A process with 512 ranks sends 20 updates, and answers some hundred requests."""
MAX_WINDOW_BYTES: Final = 512 * 1024 * 1024
"""In a window; histories of 64 full rings are 9 MB."""
_LENGTH: Final = struct.Struct(">I")


class ToUser(Struct, frozen=True, array_like=True):
    """A request of an operator, and what its key may do to this user's ranks."""

    connection: bytes
    key: bytes
    may_act: bool
    is_owner: bool
    frame: bytes


class FromUser(Struct, frozen=True, array_like=True):
    """A response to a connection; with `connection` b"" an update."""

    connection: bytes
    frame: bytes


class Budget:
    """What a user's process may send in a while, so that none keeps the agent from the others."""

    def __init__(self) -> None:
        self._since = 0.0
        self._messages = self._bytes = 0

    def spend(self, size: int, now: float) -> None:
        """Counts a message of `size` bytes; `now` is in seconds.

        Raises:
            EOFError: it was too much; the process is not to be read any more.
        """
        if now - self._since > WINDOW_S:
            self._since, self._messages, self._bytes = now, 0, 0
        self._messages += 1
        self._bytes += size
        if self._messages > MAX_MESSAGES or self._bytes > MAX_WINDOW_BYTES:
            raise EOFError("it sends more than can be read beside the others")


_encoder: Final = msgspec.msgpack.Encoder()
_to_user: Final = msgspec.msgpack.Decoder(ToUser)
_from_user: Final = msgspec.msgpack.Decoder(FromUser)


def packed(message: ToUser | FromUser) -> bytes:
    data = _encoder.encode(message)
    return _LENGTH.pack(len(data)) + data


async def receive_to_user(reader: asyncio.StreamReader) -> ToUser:
    """The next message for a user's process.

    Raises:
        EOFError: the other side has ended, or sent nonsense.
    """
    try:
        return _to_user.decode(await _receive(reader))
    except msgspec.DecodeError as error:
        raise EOFError(str(error)) from error


async def receive_from_user(reader: asyncio.StreamReader) -> FromUser:
    """The next message of a user's process.

    Raises:
        EOFError: as above.
    """
    try:
        return _from_user.decode(await _receive(reader))
    except msgspec.DecodeError as error:
        raise EOFError(str(error)) from error


async def _receive(reader: asyncio.StreamReader) -> bytes:
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > MAX_BYTES:
            raise EOFError(f"a message of {length} bytes")
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, OSError) as error:
        raise EOFError(str(error)) from error
