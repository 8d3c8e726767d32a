"""Shapes, splits and tags of an op as integers, and back.

Kind, dtypes and devices hardly vary: they are the op's *form*, written once. What may vary from op
to op is a record of integers, in this order:

    inputs, if the form has them: their runs
    outputs, likewise
    splits, if the form has them: number of outgoing ones, each of them; the same for incoming
    tag, if the form has one

Runs are the tensors of an argument, with equal neighbours folded: the number of runs, then for each
run the index of dtype and device in the form's list, the number of tensors, the number of
dimensions, and each dimension.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from zlib import crc32

from frtop_probe.ring import layout

_POSITION: Final = struct.Struct("=Q")
_MAX_COUNT: Final = 2**16 - 1
_CODES: Final = {code: array(code).itemsize for code in "IQ"}
_HEAD: Final = layout.SIZES.size
_pack_position: Final = _POSITION.pack
_pack_head: Final = layout.SIZES.pack


Run = tuple[str, tuple[int, ...], int, str]
"""Equal tensors: dtype, shape, count, device."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The decoded integers of an op; None for what its form does not have.

    Empty splits mean even ones.
    """

    inputs: tuple[Run, ...] | None = None
    outputs: tuple[Run, ...] | None = None
    in_splits: tuple[int, ...] | None = None
    out_splits: tuple[int, ...] | None = None
    tag: int | None = None


def pack(integers: Sequence[int]) -> tuple[bytes, int] | None:
    """Packs integers from 0 to 2**64 - 1; returns them and the number of bytes per integer.

    Returns None if there are too many, or one does not fit.
    """
    if len(integers) > _MAX_COUNT:
        return None
    for code in _CODES:
        try:
            return array(code, integers).tobytes(), _CODES[code]
        except OverflowError:
            continue
    return None


def chunks(packed: bytes) -> int:
    """Returns how many chunks the record of packed integers takes."""
    return -(-(_HEAD + len(packed)) // layout.CHUNK)


def record(position: int, packed: bytes, width: int) -> bytes:
    """Returns a record.

    Args:
        position: number of the record's first chunk.
        packed: the integers.
        width: bytes of each.
    """
    checksum = crc32(_pack_position(position) + packed)
    return _pack_head(position, checksum, len(packed) // width, width) + packed


def head(data: bytes, position: int) -> tuple[int, int] | None:
    """Returns count and width in bytes of the integers; None if another record is there."""
    found, _, count, width = layout.SIZES.unpack_from(data)
    return (count, width) if found == position and width in (4, 8) else None


def integers(data: bytes, position: int) -> tuple[int, ...] | None:
    """Decodes a whole record; None if it is torn, or another record is there."""
    found, checksum, count, width = layout.SIZES.unpack_from(data)
    packed = data[_HEAD : _HEAD + count * width]
    if found != position or width not in (4, 8) or len(packed) != count * width:
        return None
    if crc32(packed, crc32(_POSITION.pack(position))) != checksum:
        return None
    return struct.unpack(f"={count}{'I' if width == 4 else 'Q'}", packed)


def decode(form: dict[str, Any], given: Sequence[int]) -> Sizes | None:
    """Decodes the integers of an op with this form; None if they do not fit it."""
    if max(given, default=0) >= layout.LONGEST:
        return None
    rest = _Reader(given)
    try:
        inputs = _runs(rest, form["inputs"]) if "inputs" in form else None
        outputs = _runs(rest, form["outputs"]) if "outputs" in form else None
        in_splits = out_splits = None
        if form.get("splits"):
            in_splits = rest.take(rest.next())
            out_splits = rest.take(rest.next())
        tag = rest.next() if form.get("tag") else None
    except (LookupError, TypeError, ValueError):
        return None
    return Sizes(inputs, outputs, in_splits, out_splits, tag) if rest.at == len(given) else None


class _Reader:
    __slots__ = ("at", "given")

    def __init__(self, given: Sequence[int]) -> None:
        self.given = given
        self.at = 0

    def next(self) -> int:
        self.at += 1
        return self.given[self.at - 1]

    def take(self, count: int) -> tuple[int, ...]:
        if count > len(self.given) - self.at:
            raise IndexError
        self.at += count
        return tuple(self.given[self.at - count : self.at])


def _runs(rest: _Reader, kinds: Any) -> tuple[Run, ...]:
    runs = []
    for _ in range(min(rest.next(), len(rest.given))):
        dtype, device = kinds[rest.next()]
        count = rest.next()
        runs.append((str(dtype), rest.take(rest.next()), count, str(device)))
    return tuple(runs)
