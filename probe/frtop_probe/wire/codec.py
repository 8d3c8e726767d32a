"""Encodes and decodes messages; decoding checks every type and bound."""

from __future__ import annotations

from functools import cache, reduce
from operator import or_
from typing import Any, Final, TypeVar

import msgspec

from frtop_probe import feature_folders
from frtop_probe.wire.declaration import DECLARED, Error, Request, Response
from frtop_probe.wire.ranks import Identity
from frtop_probe.wire.requests import BlackBox
from frtop_probe.wire.updates import RankUpdate, Update

PROTOCOL: Final = b"frtop1"
MAX_MESSAGE: Final = 64 * 1024 * 1024
"""Upper bound on a message in bytes; also the limit of the sockets."""

MAX_ARRAYS: Final = 1_000_000
MAX_VALUES: Final = 4_000_000
"""Upper bounds on the objects in a message. A struct of two bytes takes two hundred in memory: with
only a bound on size, 64 MB could become 6 GB. An agent's fullest answer has 200,000 objects."""
_ANY_BYTES: Final = 8 * 1024 * 1024
"""Bytes of a message that may be arbitrary data, such as those of a tensor."""
_ARRAYS: Final = bytes((*range(0x90, 0xA0), 0xDC, 0xDD))
_VALUES: Final = bytes((*range(0xA0, 0xC0), *range(0xC4, 0xD4), *range(0xD9, 0xDC)))
"""First bytes in msgpack of an array; and of a text or a number of several bytes."""

MAX_OF_RANK: Final = 8 * 1024 * 1024
"""Most bytes of an update about one rank: more than the largest ring can hold."""

Message = TypeVar("Message")


class WireError(Exception):
    """The data is not a message of this protocol: too large, malformed, or of another type."""


_encoder = msgspec.msgpack.Encoder()
_updates = msgspec.msgpack.Decoder(Update)
_ranks = msgspec.msgpack.Decoder(RankUpdate)
_identities = msgspec.msgpack.Decoder(Identity)
_boxes = msgspec.msgpack.Decoder(BlackBox)


@cache
def declared() -> tuple[type[Request], ...]:
    """All requests of the core and of the existing features."""
    list(feature_folders.modules("messages"))
    return tuple(sorted(DECLARED, key=lambda kind: kind.__name__))


@cache
def _requests() -> msgspec.msgpack.Decoder[Request]:
    return _of_any(declared())


@cache
def _responses() -> msgspec.msgpack.Decoder[Response]:
    return _of_any((*dict.fromkeys(one.answer for one in declared()), Error))


def _of_any(kinds: tuple[type[Any], ...]) -> msgspec.msgpack.Decoder[Any]:
    # They are known only at run time, so a type checker cannot check this.
    return msgspec.msgpack.Decoder(reduce(or_, kinds))


def encode(message: Update | Request | Response | BlackBox) -> bytes:
    return _encoder.encode(message)


def size_of_rank(part: RankUpdate | Identity) -> int:
    """Returns how many bytes one rank's part of a message takes.

    Raises:
        WireError: it cannot be encoded, an operator would refuse it, or it is larger than
            `MAX_OF_RANK`.
    """
    try:
        data = _encoder.encode(part)
    except (ValueError, OverflowError, TypeError, RecursionError) as error:
        raise WireError(f"it cannot be encoded: {error}") from error
    if len(data) > MAX_OF_RANK:
        raise WireError(f"what it says has {len(data):,} bytes")
    if isinstance(part, Identity):
        _decode(_identities, data)
    else:
        _decode(_ranks, data)
    return len(data)


def to_frame(message: Update | Request | Response) -> bytes:
    """Encodes a message into the one frame that is sent."""
    return PROTOCOL + _encoder.encode(message)


def from_frame(frame: bytes) -> bytes:
    """Removes the protocol's prefix from a frame; raises `WireError` when it is missing."""
    if not frame.startswith(PROTOCOL):
        raise WireError("not a message of frtop")
    return frame[len(PROTOCOL) :]


def decode_update(data: bytes) -> Update:
    """Decodes an update; raises `WireError` for anything else."""
    return _decode(_updates, data)


def decode_request(data: bytes) -> Request:
    """Decodes a request; raises `WireError` for anything else."""
    return _decode(_requests(), data)


def decode_response(data: bytes) -> Response:
    """Decodes a response; raises `WireError` for anything else."""
    return _decode(_responses(), data)


def decode_box(data: bytes) -> BlackBox:
    """Decodes a black box, whose file bounds the size; raises `WireError` for anything else."""
    try:
        return _boxes.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(str(error)) from error


def _decode(decoder: msgspec.msgpack.Decoder[Message], data: bytes) -> Message:
    if len(data) > MAX_MESSAGE:
        raise WireError(f"message of {len(data)} bytes is larger than {MAX_MESSAGE}")
    if len(data) > MAX_ARRAYS:  # each has at least one byte
        data_of_any = min(len(data), _ANY_BYTES)
        arrays, values = _count(data, _ARRAYS), _count(data, _VALUES)
        if arrays > MAX_ARRAYS + data_of_any // 12 or values > MAX_VALUES + data_of_any // 4:
            raise WireError(f"message of {len(data)} bytes has too many objects")
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(str(error)) from error


def _count(data: bytes, wanted: bytes) -> int:
    """Returns how often these bytes occur: at least as often as objects begin with one."""
    return len(data) - len(data.translate(None, wanted))
