"""`Struct` on top of dataclasses."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

__all__ = ["Field", "Struct", "asdict", "astuple", "defstruct", "field", "fields", "replace"]

_NAME: Final = "encoded name"
_EMPTY: Final = (list, dict, set)


@dataclasses.dataclass(frozen=True)
class Field:
    """A field: its name in Python and in messages, and whether messages may omit it."""

    name: str
    encode_name: str
    required: bool


def field(
    *,
    default: Any = dataclasses.MISSING,
    default_factory: Any = dataclasses.MISSING,
    name: str | None = None,
) -> Any:
    """A field whose name in messages may differ from its name in Python."""
    known = {} if name is None else {_NAME: name}
    if default is not dataclasses.MISSING:
        return dataclasses.field(default=default, metadata=known)
    return dataclasses.field(default_factory=default_factory, metadata=known)


_RENAMED: Final[Mapping[str | None, Callable[[str], str]]] = {
    None: lambda name: name,
    "kebab": lambda name: name.replace("_", "-"),
    "camel": lambda name: re.sub("_(.)", lambda found: found[1].upper(), name),
}


class Struct:
    """A class whose annotations are its fields."""

    __struct_array__: ClassVar[bool] = False
    __struct_tag__: ClassVar[str | None] = None
    __struct_frozen__: ClassVar[bool] = False
    __struct_rename__: ClassVar[str | None] = None
    __struct_fields__: ClassVar[tuple[str, ...]] = ()
    __struct_encode_fields__: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(
        cls,
        *,
        frozen: bool = False,
        array_like: bool = False,
        tag: str | bool | None = None,
        rename: str | None = None,
        kw_only: bool = False,
        **_: bool,
    ) -> None:
        """The other options change neither values nor what is accepted here."""
        for name, value in list(vars(cls).items()):
            # Each value gets its own empty container as a default.
            if name in vars(cls).get("__annotations__", ()) and type(value) in _EMPTY:
                setattr(cls, name, dataclasses.field(default_factory=type(value)))
        # A subclass inherits all of this.
        cls.__struct_frozen__ |= frozen
        cls.__struct_array__ |= array_like
        cls.__struct_rename__ = rename or cls.__struct_rename__
        dataclasses.dataclass(frozen=cls.__struct_frozen__, kw_only=kw_only)(cls)
        cls.__struct_tag__ = cls.__name__ if tag is True else tag or None
        cls.__struct_fields__ = tuple(one.name for one in fields(cls))
        cls.__struct_encode_fields__ = tuple(one.encode_name for one in fields(cls))


def defstruct(
    name: str,
    fields: Sequence[tuple[str, Any, Any]],
    *,
    bases: tuple[type[Struct], ...] = (Struct,),
    **options: Any,
) -> type[Struct]:
    """A struct of fields with their types and defaults."""
    namespace = {one: default for one, _, default in fields}
    annotations = {one: kind for one, kind, _ in fields}
    return type(name, bases, {**namespace, "__annotations__": annotations}, **options)


def asdict(value: Any) -> dict[str, Any]:
    """The fields by name; values stay as they are."""
    return {name: getattr(value, name) for name in _names(value)}


def astuple(value: Any) -> tuple[Any, ...]:
    """The fields in order; values stay as they are."""
    return tuple(getattr(value, name) for name in _names(value))


def _names(value: Any) -> tuple[str, ...]:
    return tuple(one.name for one in dataclasses.fields(value))


def fields(kind: Any) -> tuple[Field, ...]:
    """The fields of a struct or a dataclass, in order."""
    missing, rename = dataclasses.MISSING, _RENAMED[getattr(kind, "__struct_rename__", None)]
    return tuple(
        Field(
            one.name,
            one.metadata.get(_NAME) or rename(one.name),
            one.default is missing and one.default_factory is missing,
        )
        for one in dataclasses.fields(kind)
    )
