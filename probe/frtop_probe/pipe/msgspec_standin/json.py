"""JSON to types, and values to JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from .conversion import DecodeError, convert, to_builtins

Value = TypeVar("Value")


class _JsonDecoder(Generic[Value]):
    """Decodes one type, and checks it."""

    def __init__(self, kind: Any = Any) -> None:
        self._kind = kind
        # Data that is taken as it is would not be checked below.
        self._real: Callable[[str], Any] = _finite if kind is Any else _real
        self._integer: Callable[[str], Any] = int if kind is Any else _integer

    def decode(self, data: bytes) -> Value:
        """The value of the bytes.

        Raises:
            DecodeError: the bytes are malformed, or have another type (ValidationError).
        """
        try:
            # Bad UTF-8 and numbers out of range matter only in wanted fields: checked below.
            text = data.decode(errors="surrogateescape")
            plain = json.loads(
                text, parse_constant=_refuse, parse_float=self._real, parse_int=self._integer
            )
        except json.JSONDecodeError as error:
            if error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated"):
                raise DecodeError("Input data was truncated") from error
            raise DecodeError(f"JSON is malformed: {error}") from error
        except ValueError as error:
            raise DecodeError(f"JSON is malformed: {error}") from error
        found: Value = convert(plain, self._kind)
        return found


Decoder = _JsonDecoder


def decode(data: bytes, *, type: Any = Any) -> Any:  # noqa: A002 - as msgspec calls it
    """The value of the bytes; raises `DecodeError` as a decoder does."""
    return _JsonDecoder[Any](type).decode(data)


class _JsonEncoder:
    """Writes values as JSON."""

    def encode(self, value: Any) -> bytes:
        """The JSON of a value."""
        plain = to_builtins(value)
        return json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode()


Encoder = _JsonEncoder
encode = Encoder().encode


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError("a number is out of range")
    return value


class _OutOfRange:
    """Stands in for a number that Python cannot hold: no type accepts it."""


def _real(digits: str) -> float | _OutOfRange:
    value = float(digits)
    return _OutOfRange() if math.isinf(value) else value


def _integer(digits: str) -> int | _OutOfRange:
    try:
        return int(digits)
    except ValueError:  # more digits than Python converts
        return _OutOfRange()
