"""msgpack, based on the pure-Python part of the package `msgpack`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from operator import attrgetter
from typing import Any, Generic, TypeVar

from msgpack import fallback  # the archive has only this part

from .conversion import ARRAY, PLAIN, DecodeError, convert
from .structs import fields

Value = TypeVar("Value")


class Raw(bytes):
    """Encoded bytes, which are inserted as they are."""

    __slots__ = ()


class _Packer(fallback.Packer):  # type: ignore[misc]  # it has no types
    def _pack(self, value: Any, *more: Any, **named: Any) -> None:
        if type(value) is Raw:
            self._buffer.write(value)
        else:
            super()._pack(value, *more, **named)


class Encoder:
    """Encodes structs, containers and plain values."""

    def __init__(self) -> None:
        self._packer = _Packer(default=_plain, use_bin_type=True, autoreset=True)

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


PLAIN[Raw] = lambda value: Raw(encode(value))


class Decoder(Generic[Value]):
    """Decodes one type, and checks it."""

    def __init__(self, kind: Any = Any) -> None:
        self._kind = kind

    def decode(self, data: bytes) -> Value:
        """The value of the bytes.

        Raises:
            DecodeError: the bytes are malformed, or have another type (ValidationError).
        """
        try:  # A text that is not UTF-8 is refused where its type is checked, not where none reads.
            plain = fallback.unpackb(data, unicode_errors="surrogateescape", strict_map_key=False)
        except (ValueError, TypeError) as error:  # all of msgpack's errors; a list as a key
            raise DecodeError(str(error) or type(error).__name__) from error
        found: Value = convert(plain, self._kind)
        return found


def _plain(value: Any) -> Any:
    """Converts types that msgpack does not know."""
    if is_dataclass(value):  # every struct is one
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
    if not getattr(kind, ARRAY, False):
        return lambda value: {one.encode_name: getattr(value, one.name) for one in known}
    tag = () if kind.__struct_tag__ is None else (kind.__struct_tag__,)
    if len(names) < 2:
        return lambda value: (*tag, *(getattr(value, name) for name in names))
    get = attrgetter(*names)
    return (lambda value: tag + get(value)) if tag else get
