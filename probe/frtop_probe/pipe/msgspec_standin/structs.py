"""`Struct` on top of dataclasses."""

from __future__ import annotations

import dataclasses
from dataclasses import asdict, replace
from typing import Any, ClassVar, Final

__all__ = ["Field", "Struct", "asdict", "field", "fields", "replace"]

_NAME: Final = "encoded name"
_EMPTY: Final = (list, dict, set)


@dataclasses.dataclass(frozen=True)
class Field:
    """A field: its name in Python and in messages, and whether messages may omit it."""

    name: str
    encode_name: str
    required: bool


def field(*, default: Any = dataclasses.MISSING, name: str | None = None) -> Any:
    """A field whose name in messages may differ from its name in Python."""
    return dataclasses.field(default=default, metadata={} if name is None else {_NAME: name})


class Struct:
    """A class whose annotations are its fields."""

    __struct_array__: ClassVar[bool] = False
    __struct_tag__: ClassVar[str | None] = None
    __struct_fields__: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(
        cls,
        *,
        frozen: bool = False,
        array_like: bool = False,
        tag: str | bool | None = None,
        cache_hash: bool = False,
        gc: bool = True,
    ) -> None:
        for name, value in list(vars(cls).items()):
            # Each value gets its own empty container as a default.
            if name in cls.__annotations__ and type(value) in _EMPTY:
                setattr(cls, name, dataclasses.field(default_factory=type(value)))
        dataclasses.dataclass(frozen=frozen)(cls)
        cls.__struct_array__ |= array_like  # a subclass inherits it
        cls.__struct_tag__ = cls.__name__ if tag is True else tag or None
        cls.__struct_fields__ = tuple(one.name for one in fields(cls))


def fields(kind: type[Struct]) -> tuple[Field, ...]:
    """The fields of a struct, in order."""
    missing = dataclasses.MISSING
    return tuple(
        Field(
            one.name,
            one.metadata.get(_NAME, one.name),
            one.default is missing and one.default_factory is missing,
        )
        for one in dataclasses.fields(kind)  # type: ignore[arg-type]  # every subclass is one
    )
