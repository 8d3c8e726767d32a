"""msgpack, based on the pure-Python part of the package `msgpack`."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import cache
from operator import attrgetter
from typing import Any, Generic, TypeVar

from msgpack import fallback  # the archive has only this part

from .conversion import DecodeError, converter
from .structs import Struct, fields

Value = TypeVar("Value")


class Encoder:
    """Encodes structs, containers and plain values."""

    def __init__(self) -> None:
        self._packer = fallback.Packer(default=_plain, use_bin_type=True, autoreset=True)

    def encode(self, value: Any) -> bytes:
        """The bytes of a value.

        Raises:
            OverflowError: a number is out of msgpack's range.
            UnicodeEncodeError: a text has lone surrogates.
        """
        try:
            found: bytes = self._packer.pack(value)
        except BaseException:
            self._packer.reset()  # drop what was encoded before the error
            raise
        return found


def encode(value: Any) -> bytes:
    """The bytes of a value, as from an `Encoder`."""
    return Encoder().encode(value)


class Decoder(Generic[Value]):
    """Decodes one type, and checks it."""

    def __init__(self, kind: Any = Any) -> None:
        self._convert = converter(kind)

    def decode(self, data: bytes) -> Value:
        """The value of the bytes.

        Raises:
            DecodeError: the bytes are malformed, or have another type (ValidationError).
        """
        try:  # A text that is not UTF-8 is refused where its type is checked, not where none reads.
            plain = fallback.unpackb(data, unicode_errors="surrogateescape", strict_map_key=False)
        except (ValueError, TypeError) as error:  # all of msgpack's errors; a list as a key
            raise DecodeError(str(error) or type(error).__name__) from error
        found: Value = self._convert(plain)
        return found


def _plain(value: Any) -> Any:
    """Converts types that msgpack does not know."""
    if isinstance(value, Struct):
        kind: Any = type(value)
        return _dismantle(kind)(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (set, frozenset)):
        return list(value)
    if isinstance(value, int):
        raise OverflowError("an integer is out of msgpack's range")
    raise TypeError(f"values of type {type(value).__name__} cannot be encoded")


@cache
def _dismantle(kind: Any) -> Callable[[Any], Any]:
    known = fields(kind)
    names = [one.name for one in known]
    if not kind.__struct_array__:
        return lambda value: {one.encode_name: getattr(value, one.name) for one in known}
    tag = () if kind.__struct_tag__ is None else (kind.__struct_tag__,)
    if len(names) < 2:
        return lambda value: (*tag, *(getattr(value, name) for name in names))
    get = attrgetter(*names)
    return (lambda value: tag + get(value)) if tag else get
