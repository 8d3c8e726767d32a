"""Checks plain values against types, as msgspec does while it decodes: strictly."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union

from .structs import Field, Struct, fields

Converter = Callable[[Any], Any]


ARRAY: Final = "__struct_array__"


class MsgspecError(Exception):
    """Base of all errors."""


class DecodeError(MsgspecError):
    """The data is malformed."""


class ValidationError(DecodeError):
    """The data has another type."""


@dataclass(frozen=True)
class Meta:
    """Bounds of a value; inside `Annotated`."""

    ge: float | None = None
    le: float | None = None
    max_length: int | None = None


def convert(value: Any, kind: Any) -> Any:
    """Makes a value of this type from lists, dicts and the like.

    Raises:
        ValidationError: `value` has another form.
    """
    return converter(kind)(value)


def to_builtins(value: Any) -> Any:
    """The same of dicts, lists and plain values alone."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {to_builtins(key): to_builtins(one) for key, one in value.items()}
    if isinstance(value, tuple):
        return tuple(map(to_builtins, value))
    if isinstance(value, (list, set, frozenset)):
        return [to_builtins(one) for one in value]
    if not is_dataclass(value):
        return value
    pairs = [(one.encode_name, to_builtins(getattr(value, one.name))) for one in fields(value)]
    return [one for _, one in pairs] if getattr(value, ARRAY, False) else dict(pairs)


@cache
def converter(kind: Any) -> Converter:
    """Returns the function that checks and makes values of a type."""
    if kind in PLAIN:
        return PLAIN[kind]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _to_enum(kind)
    origin = typing.get_origin(kind)
    made: Any = origin or kind
    if isinstance(made, type) and (issubclass(made, Struct) or is_dataclass(made)):
        return _to_array_struct(made) if getattr(made, ARRAY, False) else _to_map_struct(made)
    if origin not in _OF_PARTS:
        raise TypeError(f"the stand-in for msgspec does not know {kind}")
    return _OF_PARTS[origin](typing.get_args(kind))


def _wrong(expected: str, value: Any) -> ValidationError:
    return ValidationError(f"Expected `{expected}`, got `{type(value).__name__}`")


def _exactly(kind: type, name: str) -> Converter:
    def check(value: Any) -> Any:
        if type(value) is not kind:
            raise _wrong(name, value)
        return value

    return check


def _to_text(value: Any) -> str:
    if type(value) is not str:
        raise _wrong("str", value)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ValidationError("a text has half of a surrogate pair, or is not UTF-8") from error
    return value


def _to_float(value: Any) -> float:
    if type(value) is int:
        try:
            return float(value)
        except OverflowError as error:
            raise ValidationError(str(error)) from error
    if type(value) is not float:
        raise _wrong("float", value)
    return value


def _to_bounded(parts: tuple[Any, ...]) -> Converter:
    inner, bounds = converter(parts[0]), parts[1]

    def check(value: Any) -> Any:
        found = inner(value)
        if bounds.max_length is not None and len(found) > bounds.max_length:
            raise ValidationError(f"Expected a length <= {bounds.max_length}")
        if found != found:  # noqa: PLR0124 - NaN, which no comparison refuses
            raise ValidationError("Expected a number")
        if bounds.ge is not None and found < bounds.ge:
            raise ValidationError(f"Expected a value >= {bounds.ge}")
        if bounds.le is not None and found > bounds.le:
            raise ValidationError(f"Expected a value <= {bounds.le}")
        return found

    return check


def _to_union(parts: tuple[Any, ...]) -> Converter:
    tags = {getattr(part, "__struct_tag__", None): part for part in parts}
    tagged = {tag: converter(part) for tag, part in tags.items() if tag is not None}
    if len(tagged) == len(parts):
        return lambda value: _by_tag(tagged, value)
    inner = tuple(converter(part) for part in parts)

    def check(value: Any) -> Any:
        problem = None
        for one in inner:
            try:
                return one(value)
            except ValidationError as error:
                problem = problem or error
        assert problem is not None, "a union has parts"
        raise problem

    return check


def _by_tag(tagged: dict[str, Converter], value: Any) -> Any:
    if type(value) not in (list, tuple) or not value:
        raise _wrong("array", value)
    chosen = tagged.get(value[0]) if type(value[0]) is str else None
    if chosen is None:
        raise ValidationError("Invalid value - at `$[0]`")
    return chosen(value)


def _to_enum(kind: type[Enum]) -> Converter:
    def make(value: Any) -> Enum:
        try:
            return kind(value)
        except ValueError as error:
            raise ValidationError(f"Invalid enum value {value!r}") from error

    return make


def _to_literal(parts: tuple[Any, ...]) -> Converter:
    def check(value: Any) -> Any:
        if not any(type(value) is type(part) and value == part for part in parts):
            raise ValidationError(f"Invalid enum value {value!r}")
        return value

    return check


def _to_set(parts: tuple[Any, ...]) -> Converter:
    inner = _to_list(parts)
    return lambda value: frozenset(inner(value))


def _to_list(parts: tuple[Any, ...]) -> Converter:
    inner = converter(parts[0])

    def make(value: Any) -> list[Any]:
        if type(value) not in (list, tuple):
            raise _wrong("array", value)
        return [inner(part) for part in value]

    return make


def _to_tuple(parts: tuple[Any, ...]) -> Converter:
    if len(parts) == 2 and parts[1] is Ellipsis:
        inner = _to_list(parts)
        return lambda value: tuple(inner(value))
    each = tuple(converter(part) for part in parts)

    def make(value: Any) -> tuple[Any, ...]:
        if type(value) not in (list, tuple):
            raise _wrong("array", value)
        if len(value) != len(each):
            raise ValidationError(f"Expected `array` of length {len(each)}, got {len(value)}")
        return tuple(one(part) for one, part in zip(each, value, strict=True))

    return make


def _to_dict(parts: tuple[Any, ...]) -> Converter:
    key, inner = map(converter, parts)

    def make(value: Any) -> dict[Any, Any]:
        if type(value) is not dict:
            raise _wrong("object", value)
        return {key(name): inner(part) for name, part in value.items()}

    return make


def _to_array_struct(kind: Any) -> Converter:
    known = fields(kind)
    required = sum(one.required for one in known)
    tag = kind.__struct_tag__
    skipped = 0 if tag is None else 1
    each: list[Converter] = []

    def make(value: Any) -> Any:
        if type(value) not in (list, tuple):
            raise _wrong("array", value)
        if len(value) < required + skipped:
            raise ValidationError(
                f"Expected `array` of at least length {required + skipped}, got {len(value)}"
            )
        if tag is not None and value[0] != tag:
            raise ValidationError("Invalid value - at `$[0]`")
        if not each:  # a module may name a type before it defines it
            hints = typing.get_type_hints(kind, include_extras=True)
            each.extend(converter(hints[one.name]) for one in known)
        # Unknown extra fields come from a newer program; missing ones from an older one.
        return kind(*(one(part) for one, part in zip(each, value[skipped:], strict=False)))

    return make


def _to_map_struct(kind: type[Any]) -> Converter:
    known = fields(kind)
    each: list[tuple[Field, Converter]] = []

    def make(value: Any) -> Any:
        if type(value) is not dict:
            raise _wrong("object", value)
        if not each:
            hints = typing.get_type_hints(kind, include_extras=True)
            each.extend((one, converter(hints[one.name])) for one in known)
        found = {}
        for name in value:
            if type(name) is not str:
                raise _wrong("str", name)
        for one, inner in each:
            if one.encode_name in value:
                found[one.name] = inner(value[one.encode_name])
            elif one.required:
                raise ValidationError(f"Object missing required field `{one.encode_name}`")
        return kind(**found)

    return make


PLAIN: Final[dict[Any, Converter]] = {
    Any: lambda value: value,
    None: _exactly(NoneType, "null"),
    NoneType: _exactly(NoneType, "null"),
    float: _to_float,
    str: _to_text,
    **{kind: _exactly(kind, kind.__name__) for kind in (int, bool, bytes)},
}
_OF_PARTS: Final[dict[Any, Callable[[tuple[Any, ...]], Converter]]] = {
    Annotated: _to_bounded,
    Union: _to_union,
    UnionType: _to_union,
    Literal: _to_literal,
    Mapping: _to_dict,
    dict: _to_dict,
    frozenset: _to_set,
    list: _to_list,
    tuple: _to_tuple,
}
