"""The complete judged frame as JSON, with every field by name; and its schema.

On the wire and in captures, structs are arrays. Here each has a twin that is an object with the
same fields. Fields equal to their default are left out: the schema has the defaults.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from typing import Any, Final, Literal

import msgspec
from msgspec import NODEFAULT, Struct

from frtop_tui.diagnosis.model import Frame

SCHEMA: Final = "frtop-frame-1"
"""Changes when a field's meaning or type changes; new fields do not change it."""


class FrameExport(Struct, frozen=True):
    """The whole document. `frtop` is the version that wrote it."""

    schema: Literal["frtop-frame-1"]
    frtop: str
    frame: Frame


def frame_json(frame: Frame) -> bytes:
    """The whole document, in UTF-8."""
    document = FrameExport(SCHEMA, metadata.version("frtop"), frame)
    return msgspec.json.encode(msgspec.convert(document, _twin(FrameExport), from_attributes=True))


def frame_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of the document, from the types themselves."""
    schema = msgspec.json.schema(_twin(FrameExport))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "One judged frame of frtop (frtop export --format json)",
        **schema,
    }


@cache
def _twin(kind: type[Struct]) -> type[Struct]:
    """The same struct as an object with named fields, with twins of the structs in it."""
    hints = typing.get_type_hints(kind)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for one in msgspec.structs.fields(kind):
        hint = _twinned(hints[one.name])
        if one.default is not NODEFAULT:
            fields.append((one.name, hint, _twin_default(one.default, hint)))
        elif one.default_factory is not NODEFAULT:
            made = msgspec.field(default_factory=one.default_factory)
            fields.append((one.name, hint, made))
        else:
            fields.append((one.name, hint))
    return msgspec.defstruct(
        kind.__name__,
        fields,
        frozen=True,
        omit_defaults=True,
        namespace={"__doc__": kind.__doc__},
    )


def _twinned(hint: Any) -> Any:
    if isinstance(hint, type) and issubclass(hint, Struct):
        return _twin(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is None or origin is Literal:
        return hint
    inner = tuple(one if one is ... else _twinned(one) for one in arguments)
    if origin in (types.UnionType, typing.Union):
        return typing.Union[inner]  # noqa: UP007 - of as many as there are
    return (Mapping if issubclass(origin, Mapping) else origin)[inner]


def _twin_default(default: object, hint: Any) -> Any:
    return msgspec.convert(default, hint, from_attributes=True)
